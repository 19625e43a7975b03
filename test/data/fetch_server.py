#!/usr/bin/env python3
"""The server of fetch.sh (the test): serves FOLDER on 127.0.0.1, in the way that the first part of a path asks for.

usage: fetch_server.py FOLDER      writes FOLDER/port when it listens, and a line for each request to FOLDER/requests:
                                   METHOD PATH HOST RANGE AUTHORIZATION
Paths are those of Hugging Face: /WAY/resolve/REVISION/FILE. A request is the first of its kind if no other asked for
this path before. Ends when its standard input is closed. If FOLDER has cert.pem and key.pem, https is served too, on
the port in FOLDER/https_port; redirections lead to http.
"""
import hashlib
import os
import socket
import ssl
import struct
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

folder = sys.argv[1]
asked = {}  # path: how many GETs
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        headers = self.headers
        with lock:
            count = asked[self.command + self.path] = asked.get(self.command + self.path, 0) + 1
            with open(f"{folder}/requests", "a") as log:
                print(self.command, self.path, headers["Host"], headers["Range"] or "-",
                      headers["Authorization"] or "-", file=log)
        way, _, revision, name = self.path.split("?")[0].strip("/").split("/", 3)
        self.way, self.first = way, count == 1
        here = f"http://127.0.0.1:{server.server_port}"
        there = f"http://localhost:{server.server_port}"
        with open(f"{folder}/{name}", "rb") as file:
            data = file.read()
        if way == "missing":
            return self.say(404)
        if way == "busy" and self.first and self.command == "HEAD":
            return self.say(429, {"Retry-After": "1"})
        if way == "busy_long":
            return self.say(429, {"Retry-After": "100000"})
        if way == "failing" and (count <= 2 or revision == "always"):
            return self.say(500, body=b"<html>an error page</html>")
        if way == "late_error" and self.command == "GET" and self.first:
            return self.say(503, body=b"<html>an error page</html>")
        if way == "private" and headers["Authorization"] != "Bearer hf_secret":
            return self.say(401, body=b"<html>log in</html>")
        if way == "no_head" and self.command == "HEAD":
            return self.say(405)
        if way in ("other_host", "private"):
            return self.say(302, {"Location": f"{there}/plain/resolve/{revision}/{name}"})
        if way == "same_host":
            return self.say(307, {"Location": f"/private/resolve/{revision}/{name}"})
        if way == "circle":
            return self.say(302, {"Location": f"{here}{self.path}"})
        if way == "late_redirect" and self.command == "GET":  # says nothing of it to HEAD
            return self.say(302, {"Location": f"{there}/plain/resolve/{revision}/{name}"}, b"moved")
        if way in ("linked", "linked_wrong", "linked_other"):
            text = data + b"other" if way == "linked_other" else data
            return self.say(302, {"Location": f"{there}/{'wrong' if way == 'linked_wrong' else 'plain'}/resolve/"
                                              f"{revision}/{name}",
                                  "X-Linked-ETag": f'"{hashlib.sha256(text).hexdigest()}"',
                                  "X-Linked-Size": str(len(text))}, b"a redirection's page")
        if way == "wrong":
            data = data[:-1] + bytes([data[-1] ^ 1])
        if way == "short":
            data = data[:-100]
        if way == "page":
            data = b"<html>Sign in</html>"
        self.send_file(data)

    def say(self, status, headers={}, body=b""):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def send_file(self, data):
        start, total = 0, len(data)
        wanted = self.headers["Range"]
        etag = f'"{hashlib.sha256(data).hexdigest()[:8]}"'
        if wanted and self.way not in ("no_ranges", "no_ranges_cut"):
            start = int(wanted.split("=")[1].split("-")[0])
            if start >= total:
                return self.say(416, {"Content-Range": f"bytes */{total}"})
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        else:
            self.send_response(200)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(total - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        end = total
        if self.way == "cut":  # each answer has a part of what is left
            end = start + 20000
        if self.way == "stuck" or (self.way in ("reset", "no_ranges_cut") and self.first):
            end = min(end, 20000)
        for at in range(start, min(end, total), 10000):
            self.wfile.write(data[at:min(at + 10000, end)])
            if self.way == "slow":
                threading.Event().wait(0.01)
        if end < total:
            if self.way == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True


class Server(ThreadingHTTPServer):
    def handle_error(self, request, client):  # a client that went away
        pass


def listen(name):
    """Starts a server; FOLDER/NAME gets its port."""
    server = Server(("127.0.0.1", 0), Handler)
    if name == "https_port":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with open(f"{folder}/{name}.new", "w") as port:
        port.write(str(server.server_port))
    os.rename(f"{folder}/{name}.new", f"{folder}/{name}")
    return server


if os.path.exists(f"{folder}/key.pem"):
    listen("https_port")
server = listen("port")
sys.stdin.read()
