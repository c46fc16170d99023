"""nginx on loopback, configured with the server block of the documents."""

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

from tests.support.machines import REPOSITORY, wait_until
from tests.support.stories import listening

NGINX = """
{user}
daemon off;
worker_processes 1;
pid {work}/pid;
error_log {work}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log {work}/access.log;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    {server}
}}
"""


def documented_server(port: int, root: Path) -> str:
    """Return the server block of ``docs/web-server.md``, with another address and directory."""
    page = (REPOSITORY / "docs/web-server.md").read_text()
    match = re.search(r"^```nginx\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert match, "docs/web-server.md has no nginx block"
    block, listens = re.subn(r"\blisten [^;]+;", f"listen 127.0.0.1:{port};", match[1])
    block, roots = re.subn(r"\broot [^;]+;", f"root {root};", block)
    assert (listens, roots) == (1, 1), match[1]
    return block


class Nginx:
    """nginx on loopback. ``url`` stays the same when it restarts."""

    def __init__(self, root: Path, work: Path) -> None:
        self.root, self.work = root, work
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # pytest's directories are private, and nginx started by root would use another user.
        user = "user root;" if os.geteuid() == 0 else ""
        configuration = NGINX.format(user=user, work=work, server=documented_server(self.port, root))
        (work / "nginx.conf").write_text(configuration)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program, "nginx is not installed (Debian: apt-get install nginx-light)"
        log = self.work / "error.log"
        command = [program, "-p", str(self.work), "-e", str(log), "-c", str(self.work / "nginx.conf")]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        wait_until(self.answers, "nginx answers", 60, log.read_text)

    def stop(self) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def requests(self) -> list[str]:
        """Return method and path of each request, oldest first."""
        return re.findall(r'"([A-Z]+ \S+) [^"]+"', "\n".join(self.log()))

    def log(self) -> list[str]:
        """Return the lines of the access log."""
        return logged(self.port if self.process else None, self.work / "access.log")


def logged(port: int | None, log: Path) -> list[str]:
    """Return the lines of an access log, complete for all previous answers. ``port``: of a running nginx.

    nginx logs an answer after sending it. Here it has one worker, so the next answer proves that the line is written.
    """
    if port:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /.logged HTTP/1.0\r\n\r\n")
            while connection.recv(4096):
                pass
    return [line for line in log.read_text().splitlines() if "/.logged" not in line]


def free_port() -> int:
    """Return a port that stays free while nginx is stopped: below the system's range for clients."""
    with listening(lambda port: socket.create_server(("127.0.0.1", port))) as server:
        port: int = server.getsockname()[1]
        return port
