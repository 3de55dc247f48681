"""A TLS port in front of a server on a unix socket: the Redis of the tests is built without TLS."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class TlsPort:
    """The port, and what came to it."""

    port: int
    opened: int = 0
    """Connections with a finished handshake."""
    words: set[bytes] = field(default_factory=set)
    """Words that clients sent, in capitals: names of commands among them."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def accept_forever(self, listening: socket.socket, behind: str, tls: ssl.SSLContext) -> None:
        while not self._stop.is_set():
            if not select.select([listening], [], [], 0.05)[0]:
                continue
            plain, _ = listening.accept()
            plain.settimeout(10)
            thread = threading.Thread(target=self._carry, args=[plain, behind, tls])
            thread.start()
            self._threads.append(thread)

    def _carry(self, plain: socket.socket, behind: str, tls: ssl.SSLContext) -> None:
        with plain, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            client = tls.wrap_socket(plain, server_side=True)
            self.opened += 1
            with client:
                server.connect(behind)
                while not self._stop.is_set():
                    ready = [client] if client.pending() else select.select([client, server], [], [], 0.05)[0]
                    if client in ready and not self._pass_on(client, server):
                        return
                    if server in ready and not self._pass_on(server, client):
                        return

    def _pass_on(self, source: socket.socket, target: socket.socket) -> bool:
        data = source.recv(65536)
        if isinstance(source, ssl.SSLSocket):
            self.words |= {line.upper() for line in data.split(b"\r\n") if line.isalpha()}
        target.sendall(data)
        return bool(data)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def tls_port(behind: str, certificate: Path, client_authority: Path | None = None) -> Iterator[TlsPort]:
    """Terminates TLS in threads; with an authority, clients have to show a certificate of it."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    if client_authority:
        tls.load_verify_locations(client_authority)
        tls.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        port = TlsPort(listening.getsockname()[1])
        accepting = threading.Thread(target=port.accept_forever, args=[listening, behind, tls])
        accepting.start()
        try:
            yield port
        finally:
            port.close()
            accepting.join()
            port.close()
