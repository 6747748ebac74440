"""The ledger: what home knows of every site and URL. Protocols by concern, and their stores."""
