"""Networks that fail: one that cuts connections after so many bytes or refuses them all, one that delivers twice."""

import socket
import threading
from contextlib import suppress


class _Proxy:
    """Listens on a port of its own; `_meet` has each connection that comes."""

    def __init__(self, address):
        host, port = address.rpartition("//")[2].split(":")
        self._to = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def _accept(self):
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._meet(client)

    def close(self):
        self._listening.close()


class DroppingProxy(_Proxy):
    """`cut_after` are the bytes that each of the next connections may carry; when they are used up, all pass."""

    def __init__(self, address, cut_after=()):
        self.cut_after, self.down, self.cuts, self._open = list(cut_after), False, 0, set()
        super().__init__(address)

    def _meet(self, client):
        if self.down:
            client.close()
            return
        try:
            server = socket.create_connection(self._to)
        except OSError:  # nobody is there at the moment
            client.close()
            return
        limit = self.cut_after.pop(0) if self.cut_after else None
        self._open |= {client, server}
        left = [limit]
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self._pass_on, args=(source, target, left), daemon=True).start()

    def _pass_on(self, source, target, left):
        with suppress(OSError):
            while data := source.recv(65_536):
                if left[0] is not None:
                    left[0] -= len(data)
                    if left[0] <= 0:
                        self.cuts += 1
                        break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
            self._open.discard(end)

    def cut(self):
        """Everything that is open, and whatever comes, until `restore`."""
        self.down = True
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def restore(self):
        self.down = False

    def close(self):
        super().close()
        self.cut()


class RepeatingProxy(_Proxy):
    """Delivers every request twice, as a network does whose answers are lost: the sender hears the second answer."""

    def __init__(self, address):
        self.repeated = 0
        super().__init__(address)

    def _meet(self, client):
        threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client, suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request:
                request += client.recv(65_536)
            head, _, body = request.partition(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            while len(body) < int(length or 0):
                body += client.recv(65_536)
            for _ in range(2):
                answer = self._delivered(head + b"\r\nconnection: close\r\n\r\n" + body)
            self.repeated += 1
            client.sendall(answer)

    def _delivered(self, request):
        with socket.create_connection(self._to) as server:
            server.sendall(request)
            answer = b""
            while data := server.recv(65_536):
                answer += data
            return answer
