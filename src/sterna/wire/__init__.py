"""What crosses the network: keys, handshake, orders, parcels, frames; nothing here opens a socket."""
