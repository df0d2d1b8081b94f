"""An adb server for tests, which speaks the real protocol. Its phone is this machine: a shell and a folder.

What it cannot show is a phone: another processor, another system, a cable.
"""

import os
import socketserver
import stat
import struct
import subprocess
import threading

SYNC, PACKET = struct.Struct("<4sI"), struct.Struct("<BI")
SERIAL = "emulator-5554"


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while (request := self.request_text()) is not None:
            service, _, rest = request.partition(":")
            if not self.serve(service, rest):
                return

    def request_text(self):
        head = self.rfile.read(4)
        return self.rfile.read(int(head, 16)).decode() if len(head) == 4 else None

    def serve(self, service, rest):
        """Whether the connection goes on: after `transport` it is one to the device."""
        if service == "host" and rest == "version":
            return self.answer("0029")
        if service == "host" and rest == "devices":
            return self.answer("".join(f"{name}\t{state}\n" for name, state in self.server.phones.items()))
        if service == "host" and rest.startswith("transport:"):
            serial = rest.partition(":")[2]
            if serial not in self.server.phones:
                return self.fail(f"device '{serial}' not found")
            self.wfile.write(b"OKAY")
            return True
        if service == "sync":
            self.wfile.write(b"OKAY")
            return self.sync()
        if service == "shell,v2,raw":
            self.wfile.write(b"OKAY")
            return self.shell(rest)
        return self.fail(f"unknown service {service}")

    def answer(self, text):
        self.wfile.write(b"OKAY" + f"{len(text):04x}".encode() + text.encode())
        return False

    def fail(self, text):
        self.wfile.write(b"FAIL" + f"{len(text):04x}".encode() + text.encode())
        return False

    def shell(self, command):
        ran = subprocess.run(["sh", "-c", command], capture_output=True, check=False, stdin=subprocess.DEVNULL)
        for kind, data in ((1, ran.stdout), (2, ran.stderr)):
            if data:
                self.wfile.write(PACKET.pack(kind, len(data)) + data)
        self.wfile.write(PACKET.pack(3, 1) + bytes([ran.returncode & 255]))
        return False

    def sync(self):
        while len(head := self.rfile.read(8)) == 8:
            kind, length = SYNC.unpack(head)
            path = self.rfile.read(length).decode()
            {b"STAT": self.sync_stat, b"SEND": self.sync_send, b"RECV": self.sync_recv}[kind](path)
        return False

    def sync_stat(self, path):
        found = os.stat(path) if os.path.exists(path) else None  # noqa: PTH110, PTH116 - as adbd does
        numbers = (found.st_mode, found.st_size, int(found.st_mtime)) if found else (0, 0, 0)
        self.wfile.write(struct.pack("<4sIII", b"STAT", *numbers))

    def sync_send(self, target):
        path, _, mode = target.rpartition(",")
        data = bytearray()
        while True:
            kind, length = SYNC.unpack(self.rfile.read(8))
            if kind == b"DONE":
                break
            assert length <= 64 * 1024, "more than a DATA of the protocol may hold"
            data += self.rfile.read(length)
        try:
            assert stat.S_ISREG(int(mode))
            with open(path, "wb") as file:  # noqa: PTH123 - as adbd does
                file.write(data)
            os.chmod(path, int(mode) & 0o777)  # noqa: PTH101 - as adbd does
        except OSError as error:
            words = f"couldn't create file: {error.strerror}".encode()
            self.wfile.write(SYNC.pack(b"FAIL", len(words)) + words)
            return
        self.server.pushed.append(path)
        self.wfile.write(SYNC.pack(b"OKAY", 0))

    def sync_recv(self, path):
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - as adbd does
                while chunk := file.read(64 * 1024):
                    self.wfile.write(SYNC.pack(b"DATA", len(chunk)) + chunk)
            self.wfile.write(SYNC.pack(b"DONE", 0))
        except OSError as error:
            words = f"open failed: {error.strerror}".encode()
            self.wfile.write(SYNC.pack(b"FAIL", len(words)) + words)


class AdbServerFake(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.phones, self.pushed = {SERIAL: "device"}, []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server_address[1]}"

    def stop(self):
        self.shutdown()
        self.server_close()
