"""The ledger: what home knows of every site and URL. Its records, and the store that keeps them."""
