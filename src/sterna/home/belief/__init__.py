"""Whether hosts are believed: what they bring is checked from here, if need be before it is used."""
