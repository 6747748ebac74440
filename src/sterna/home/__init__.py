"""The owner's side: ledger, dispatch, intake, and the collection they keep."""
