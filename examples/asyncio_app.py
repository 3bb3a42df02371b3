"""Generate inside an asyncio program: the model works in a thread of its own, the event loop stays free.

python examples/asyncio_app.py [MODEL.gguf]
"""

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cera_py
from cera_py.pull import default_model


class AsyncModel:
    """A model whose answers are asynchronous iterators. One thread serves it, so requests take turns."""

    def __init__(self, path: str, **options: Any) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cera_py")
        self._model = self._thread.submit(cera_py.load, path, **options).result()

    async def generate(self, prompt: str, **options: Any) -> AsyncIterator[str]:
        """Yield the text of each piece. To stop early, leave the loop or cancel the task."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        stopped = threading.Event()

        def work() -> None:
            try:
                with contextlib.closing(self._model.generate(prompt, **options)) as generation:
                    for piece in generation:
                        if stopped.is_set():
                            break
                        loop.call_soon_threadsafe(queue.put_nowait, piece.text)
            finally:
                loop.call_soon_threadsafe(queue.put_nowait, None)

        future = loop.run_in_executor(self._thread, work)
        try:
            while (text := await queue.get()) is not None:
                yield text
        finally:
            stopped.set()  # also when the task was cancelled: the thread stops before its next token
            await future  # and what went wrong in it is raised here

    def close(self) -> None:
        """Free the model, after the request in progress."""
        self._thread.submit(self._model.close).result()
        self._thread.shutdown()


async def show(model: AsyncModel) -> None:
    async for text in model.generate("Once upon a time", max_tokens=40, seed=1):
        print(text, end="", flush=True)
    print()


async def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else str(default_model())
    model = AsyncModel(path, context=512)
    try:
        ticks = 0
        answer = asyncio.create_task(show(model))
        while not answer.done():  # something else goes on meanwhile
            ticks += 1
            await asyncio.sleep(0.01)
        await answer
        print(f"the event loop ran {ticks} times meanwhile", file=sys.stderr)

        endless = asyncio.create_task(show(model))
        await asyncio.sleep(0.05)
        endless.cancel()
        await asyncio.wait([endless])
        print("\ncancelled" if endless.cancelled() else "\nit was faster", file=sys.stderr)
    finally:
        model.close()


if __name__ == "__main__":
    asyncio.run(main())
