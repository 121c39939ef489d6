"""A TCP proxy between daemon and server that cuts, stalls and delays."""

import socket
import threading
import time


class Proxy:
    """Listens on a free port of 127.0.0.1 and passes bytes on to a target port there."""

    def __init__(self, target):
        self.target = target
        self.delay = 0.0
        self.refuse = False
        self.flowing = threading.Event()
        self.flowing.set()
        self._pairs = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuse:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._pairs.append((client, server))
            if self.refuse:  # a cut that came while it was made has missed it
                client.close()
                server.close()
                continue
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(a, b), daemon=True).start()

    def _pump(self, source, sink):
        try:
            while True:
                data = source.recv(65536)
                self.flowing.wait()
                if self.delay:
                    time.sleep(self.delay)
                if not data:
                    break
                sink.sendall(data)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        """Ends every connection there is."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for s in pair:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def stall(self):
        """Nothing passes until resume(); connections stay."""
        self.flowing.clear()

    def resume(self):
        self.flowing.set()

    def close(self):
        self._listener.close()
        self.flowing.set()
        self.cut()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
