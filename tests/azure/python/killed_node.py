"""A node that a ledger kills and starts again."""

import signal
import subprocess
import time
import urllib.request


class KilledNode:
    """Runs with the settings of `folder`, which has its log, too; `http` is its port for HTTP."""

    def __init__(self, bin, folder, http):
        self.command = [bin, "up", "-c", f"{folder}/highwater.toml"]
        self.log, self.url = f"{folder}/log", f"http://127.0.0.1:{http}"
        self.start()

    def start(self):
        log = open(self.log, "ab")
        self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        limit = time.time() + 60
        while time.time() < limit:
            try:
                urllib.request.urlopen(f"{self.url}/readyz", timeout=2).read()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit("the node does not start")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self):
        self.kill()
        self.start()
