"""What the owner sees and controls: audit log, doors, status, receipts and savings, dry runs."""
