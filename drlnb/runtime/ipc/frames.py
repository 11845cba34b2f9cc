"""Send framed messages between an agent and its child processes, over one socketpair each.

A frame is ``<header length: 4 bytes><payload length: 8 bytes><msgpack header><payload>``, big endian.  The payload is
raw bytes (experience, parameters): it is neither pickled nor copied through msgpack.  A fence in a header is an
extension type of msgpack's: it arrives as a fence.
"""

import asyncio
import select
import socket
import struct
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import msgpack
import numpy as np

from drlnb.records.ids import Fence
from drlnb.runtime.protocol import Payload, Plain

__all__ = ["Answer", "ChildChannel", "FrameSocket", "Reply", "plain", "receive_fds", "socket_pair", "split"]

_HEAD = struct.Struct("!IQ")
#: Larger frames mean a broken peer: 1 TiB of payload or 64 MiB of header.
_MAX_HEADER = 1 << 26
_MAX_PAYLOAD = 1 << 40
#: Longest traceback that travels, in characters; its end is what helps.
_DETAIL = 8192
#: Extension type of a fence, and its two numbers.
_FENCE, _PAIR = 1, struct.Struct("!qq")

#: A header that has arrived, and the bytes that came with it.
Answer = tuple[Plain, bytes]
#: A header to be sent, and the parts of the bytes that go with it.
Reply = tuple[Plain, list[Payload | np.ndarray]]


def plain(value: object) -> Any:
    """Turn numpy scalars and odd mappings into what msgpack and JSON hold; the one place that does."""
    if isinstance(value, float):
        return float(value)  # numpy.float64 is a float: make it an ordinary one
    if value is None or isinstance(value, bool | int | str | bytes):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if callable(item := getattr(value, "item", None)):
        return item()  # of numpy, or of torch
    raise TypeError(f"{type(value).__name__} is not plain data: {value!r}")


def split(payload: memoryview, sizes: Iterable[int]) -> list[memoryview]:
    """Return the parts that a payload was joined of, by their bytes."""
    return [payload[start:stop] for start, stop in pairwise(accumulate(sizes, initial=0))]


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected stream sockets with room for a typical fragment."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return ours, theirs


def _extension(value: object) -> msgpack.ExtType:
    if isinstance(value, Fence):
        return msgpack.ExtType(_FENCE, _PAIR.pack(value.epoch, value.token))
    raise TypeError(f"{type(value).__name__} cannot be in the header of a frame: {value!r}")


def _extended(code: int, data: bytes) -> object:
    return Fence(*_PAIR.unpack(data)) if code == _FENCE else msgpack.ExtType(code, data)


def _header(data: bytes | bytearray) -> Plain:
    header: Plain = msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=_extended)
    return header


def _encode(header: Mapping[str, object], payloads: Sequence[Payload | np.ndarray]) -> list[Payload]:
    packed = msgpack.packb(header, use_bin_type=True, default=_extension)
    views = [memoryview(p.data if isinstance(p, np.ndarray) else p).cast("B") for p in payloads]
    return [_HEAD.pack(len(packed), sum(v.nbytes for v in views)) + packed, *views]


def _decode_head(raw: bytes) -> tuple[int, int]:
    n_header, n_payload = _HEAD.unpack(raw)
    if n_header > _MAX_HEADER or n_payload > _MAX_PAYLOAD:
        raise ConnectionError(f"broken frame: header {n_header} bytes, payload {n_payload} bytes")
    return n_header, n_payload


def receive_fds(sock: socket.socket, n_fds: int) -> tuple[Plain, list[int]] | None:
    """Wait for a small frame with some descriptors beside it; None if the other end is gone."""
    raw, fds, _, _ = socket.recv_fds(sock, 4096, n_fds)
    return (_header(raw[_HEAD.size :]), fds) if raw else None


class FrameSocket:
    """The child's end: blocking, one frame at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.setblocking(True)
        self._poller = select.poll()
        self._poller.register(sock.fileno(), select.POLLIN)

    def send(self, header: Mapping[str, object], *payloads: Payload | np.ndarray) -> None:
        """Send one frame; `payloads` are joined."""
        for part in _encode(header, payloads):
            if len(part):
                self.sock.sendall(part)

    @property
    def waiting(self) -> bool:
        """Whether a frame, or its beginning, is here to be received."""
        return self.wait(0.0)

    def wait(self, timeout_s: float) -> bool:
        """Wait for a frame, or its beginning; return whether one is here to be received."""
        return bool(self._poller.poll(1000.0 * timeout_s))

    def receive(self) -> tuple[Plain, memoryview]:
        """Wait for one frame.

        Raises
        ------
        EOFError
            If the other end is gone.
        """
        n_header, n_payload = _decode_head(bytes(self._exactly(_HEAD.size)))
        return _header(self._exactly(n_header)), memoryview(self._exactly(n_payload))

    def serve(
        self,
        answer: Callable[[Plain, memoryview], Reply],
        receive: Callable[[], tuple[Plain, memoryview]] | None = None,
    ) -> None:
        """Answer frames until the other end is gone; what an answer raises travels as text, and the next one follows.

        Parameters
        ----------
        answer
            Carries out a frame.
        receive
            Waits for the next one; None: :meth:`receive`.
        """
        while True:
            try:
                header, payload = (receive or self.receive)()
            except EOFError:
                return
            reply: Reply
            try:
                reply = answer(header, payload)
            except Exception as error:  # noqa: BLE001 - a task's fault travels to its master; the others live on
                detail = traceback.format_exc()[-_DETAIL:]
                reply = {"op": "error", "kind": type(error).__name__, "message": str(error), "detail": detail}, []
            self.send({**reply[0], "answers": header.get("id", 0)}, *reply[1])

    def _exactly(self, n: int) -> bytearray:
        buffer = bytearray(n)
        view, got = memoryview(buffer), 0
        while got < n:
            k = self.sock.recv_into(view[got:])
            if k == 0:
                raise EOFError("the agent is gone")
            got += k
        return buffer


class ChildChannel:
    """The agent's end: asyncio; frames are answered by id, everything else goes to `on_frame`.

    Parameters
    ----------
    sock, streams
        The agent's end of the pair, and the streams over it.
    on_frame
        Called with (header, payload) for each frame that answers nothing.
    on_close
        Called once, when the child is gone.
    """

    def __init__(
        self,
        sock: socket.socket,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        on_frame: Callable[[Plain, bytes], object],
        on_close: Callable[[], object],
    ) -> None:
        self._sock, (self._reader, self._writer) = sock, streams
        self._on_frame, self._on_close = on_frame, on_close
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._next_id = 0
        self.closed = False
        self._pump = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def open(
        cls, sock: socket.socket, on_frame: Callable[[Plain, bytes], object], on_close: Callable[[], object]
    ) -> "ChildChannel":
        """Wrap the agent's end of a pair."""
        sock.setblocking(False)
        return cls(sock, await asyncio.open_connection(sock=sock, limit=1 << 22), on_frame, on_close)

    def send(self, header: Mapping[str, object], *payloads: Payload | np.ndarray) -> None:
        """Send one frame without waiting for an answer."""
        if self.closed:
            raise ConnectionError("the child is gone")
        for part in _encode(header, payloads):
            self._writer.write(part)

    async def ask(
        self, header: Mapping[str, object], *payloads: Payload | np.ndarray, fds: Sequence[int] = ()
    ) -> Answer:
        """Send one frame, or a small one without payload and with descriptors beside it, and wait for its answer.

        Raises
        ------
        ConnectionError
            If the child is gone, or goes before it has answered.
        """
        self._next_id += 1
        request = self._next_id
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[request] = future
        try:
            if fds:
                socket.send_fds(self._sock, _encode({**header, "id": request}, ()), fds)
            else:
                self.send({**header, "id": request}, *payloads)
                await self._writer.drain()
            return await future
        finally:
            self._waiting.pop(request, None)

    async def _read(self) -> None:
        try:
            while True:
                n_header, n_payload = _decode_head(await self._reader.readexactly(_HEAD.size))
                header = _header(await self._reader.readexactly(n_header))
                payload = await self._reader.readexactly(n_payload) if n_payload else b""
                future = self._waiting.pop(header.get("answers", 0), None)
                if future is None:
                    self._on_frame(header, payload)
                elif not future.done():
                    future.set_result((header, payload))
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Close the pair; the child sees the end of its life line."""
        if self.closed:
            return
        self.closed = True
        self._writer.close()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("the child is gone"))
        self._waiting.clear()
        self._on_close()

    async def aclose(self) -> None:
        """Close, and wait until nothing of the channel runs."""
        self.close()
        if asyncio.current_task() is not self._pump:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
