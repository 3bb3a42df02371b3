"""Load a model, ask it something, and print the answer as it is written.

python examples/script.py [MODEL.gguf]
"""

import sys

import cera_py
from cera_py.pull import default_model


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else default_model()
    with cera_py.load(path, context=1024) as model:
        prompt = "Once upon a time, in a house by the sea,"
        if model.tokenizer.chat_template:
            prompt = model.chat_prompt([{"role": "user", "content": "Name three things to do by the sea."}])
        generation = model.generate(prompt, max_tokens=100, temperature=0.7, seed=1)
        for piece in generation:
            print(piece.text, end="", flush=True)
        print()
        rate = generation.statistics.decode_tokens_per_second
        print(f"{model.architecture} on {model.device}: {rate:.1f} tok/s", file=sys.stderr)


if __name__ == "__main__":
    main()
