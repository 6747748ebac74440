"""The smallest engine: an entry that shows that CLIPS starts in a cell, for `sterna doctor` to time."""

import socket

import clips

ANSWER = b"3"


def serve(sock: socket.socket) -> None:
    """Sends what CLIPS says to one and two."""
    sock.sendall(str(clips.Environment().eval("(+ 1 2)")).encode())
