"""Choose every token yourself: here, the likeliest one whose text has no letter "e".

python examples/own_sampler.py [MODEL.gguf]
"""

import sys

import numpy as np

import cera_py
from cera_py.pull import default_model


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else default_model()
    with cera_py.load(path, context=256) as model:
        tokenizer = model.tokenizer
        allowed = np.array(["e" not in tokenizer.decode([id]).lower() for id in range(tokenizer.vocab_size)])

        ids = tokenizer.encode("My favourite colour is")
        written: list[int] = []
        while len(written) < 24:
            logits = model.logits(ids + written)[-1]  # [vocab_size]: what may follow the last token
            best = int(np.where(allowed, logits, -np.inf).argmax())
            if best in tokenizer.end_ids:
                break
            written.append(best)
        print(tokenizer.decode(ids + written))


if __name__ == "__main__":
    main()
