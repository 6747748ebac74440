"""Child processes: how one is started, spoken to, watched and ended; and the jail that it can be put in."""
