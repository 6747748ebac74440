"""What an owner sees and does: the audit log, the doors, the state of his host, a run for trial."""
