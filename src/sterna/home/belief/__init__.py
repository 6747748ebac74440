"""Trust in hosts: their pages are checked from here, if need be before they are used."""
