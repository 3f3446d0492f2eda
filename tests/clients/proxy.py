#!/usr/bin/env python3
"""A TCP proxy that cuts a connection at the worst moment: the broker has done the work, the client does not know.

It reads Kafka frames in both directions. When the answer to a chosen request comes back from the broker, the answer
is thrown away and both sides are closed. Addresses in the broker's answers are replaced by the proxy's own, so that
clients, which always reconnect to the address in the metadata, stay behind the proxy.

    proxy.py UPSTREAM [--port 0] [--log FILE] [--cut KEY:N,N,..]...

KEY is the number of an API (0 Produce, 26 EndTxn), N counts its answers from 1. The port is the first line of
the output; every cut becomes a line of the log, so that a test can tell that it was not vacuous.
"""

import argparse
import asyncio
import struct

# APIs whose answers name brokers: Metadata, FindCoordinator, DescribeCluster.
NAMES_BROKERS = {3, 10, 60}
FRAME_BYTES_MAX = 100 << 20


async def read_frame(reader):
    head = await reader.readexactly(4)
    (size,) = struct.unpack(">i", head)
    if not 0 <= size <= FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {size} bytes")
    return head + await reader.readexactly(size)


class Proxy:
    def __init__(self, upstream, cuts, log):
        host, port = upstream.rsplit(":", 1)
        self.host, self.port = host, int(port)
        self.cuts = cuts
        self.seen = {key: 0 for key in cuts}
        self.log = log

    async def listen(self, port):
        server = await asyncio.start_server(self.connection, "127.0.0.1", port, limit=FRAME_BYTES_MAX)
        self.own_port = server.sockets[0].getsockname()[1]
        return server

    async def connection(self, reader, writer):
        try:
            up_reader, up_writer = await asyncio.open_connection(self.host, self.port, limit=FRAME_BYTES_MAX)
        except OSError:
            writer.close()
            return
        asked = {}
        ways = [
            asyncio.create_task(self.requests(reader, up_writer, asked)),
            asyncio.create_task(self.answers(up_reader, writer, asked)),
        ]
        _, open_ways = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in open_ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for side in (writer, up_writer):
            side.close()

    async def requests(self, reader, writer, asked):
        while True:
            frame = await read_frame(reader)
            key, _, correlation = struct.unpack_from(">hhi", frame, 4)
            asked[correlation] = key
            writer.write(frame)
            await writer.drain()

    async def answers(self, reader, writer, asked):
        while True:
            frame = await read_frame(reader)
            key = asked.pop(struct.unpack_from(">i", frame, 4)[0], None)
            if self.must_cut(key):
                return
            if key in NAMES_BROKERS:
                frame = self.readdress(frame)
            writer.write(frame)
            await writer.drain()

    def must_cut(self, key):
        if key not in self.cuts:
            return False
        self.seen[key] += 1
        if self.seen[key] not in self.cuts[key]:
            return False
        if self.log:
            with open(self.log, "a") as log:
                log.write(f"cut {key} {self.seen[key]}\n")
        return True

    def readdress(self, frame):
        """In every version a host is followed by its port as four bytes, so the length stays the same."""
        for host in (b"127.0.0.1", b"localhost"):
            frame = frame.replace(host + struct.pack(">i", self.port), host + struct.pack(">i", self.own_port))
        return frame


async def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("upstream")
    args.add_argument("--port", type=int, default=0)
    args.add_argument("--log")
    args.add_argument("--cut", action="append", default=[])
    args = args.parse_args()
    cuts = {}
    for cut in args.cut:
        key, numbers = cut.split(":")
        cuts[int(key)] = {int(n) for n in numbers.split(",")}
    server = await Proxy(args.upstream, cuts, args.log).listen(args.port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
