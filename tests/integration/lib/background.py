"""Work that goes on in a thread of its own beside a test."""

import threading


class Background:
    """`with` runs `work()` in a thread; it goes on while `self.going`. Its error fails the test."""

    def __init__(self):
        self.going = True
        self.error = None
        self.thread = threading.Thread(target=self._run)

    def work(self):
        raise NotImplementedError

    def _run(self):
        try:
            self.work()
        except Exception as error:  # told at the end
            self.error = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.going = False
        self.thread.join(120)
        assert not self.thread.is_alive(), "it does not end"
        assert self.error is None, self.error
