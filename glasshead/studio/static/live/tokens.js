// The tokens of the story model: byte pairs, as its tokenizer.json has them.

// The pieces of a text that are encoded one by one: Radford et al. 2019 (GPT-2).
const PIECE = /'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;
const SPECIAL = /^<(?:pad|unk|start|end)>$/;

export class Tokens {
  // Numbers of tokens, and the pairs that become one, the first ones first.
  /** @param {Record<string, number>} vocabulary @param {[string, string][]} merges */
  constructor(vocabulary, merges) {
    this.numbers = new Map(Object.entries(vocabulary));
    this.names = [...this.numbers].sort((one, other) => one[1] - other[1]).map(([name]) => name);
    this.ranks = new Map(merges.map((pair, rank) => [pair.join(" "), rank]));
    this.letters = letters();
    this.bytes = new Map(this.letters.map((letter, byte) => [letter, byte]));
  }

  encode(/** @type {string} */ text) {
    return (text.match(PIECE) ?? []).flatMap((piece) => this.pairs(piece));
  }

  pairs(/** @type {string} */ piece) {
    let parts = [...new TextEncoder().encode(piece)].map((byte) => this.letters[byte]);
    for (;;) {
      const ranks = parts.slice(1).map((part, at) => {
        return this.ranks.get(`${parts[at]} ${part}`) ?? Infinity;
      });
      const best = Math.min(...ranks);
      if (best === Infinity) return parts.map((part) => this.numbers.get(part));
      parts = joined(parts, ranks, best);
    }
  }

  /** The text of a token: bytes that are no characters are escaped. @param {number} number */
  text(number) {
    const name = this.names[number];
    if (SPECIAL.test(name)) return name;
    const bytes = Uint8Array.from(name, (letter) => this.bytes.get(letter));
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      return [...bytes]
        .map((byte) => (byte < 128 ? String.fromCharCode(byte) : hex(byte)))
        .join("");
    }
  }
}

// Join each pair of the best rank, from the left; each part has a rank with the next.
/** @param {string[]} parts @param {number[]} ranks @param {number} best */
function joined(parts, ranks, best) {
  const made = [];
  for (let at = 0; at < parts.length; at++) {
    const isPair = ranks[at] === best;
    made.push(isPair ? parts[at] + parts[at + 1] : parts[at]);
    if (isPair) at++;
  }
  return made;
}

/** The character of each byte: a printable one itself, the others in order from 256 on. */
function letters() {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const isSeen = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    return String.fromCharCode(isSeen ? byte : next++);
  });
}

const hex = (/** @type {number} */ byte) => `\\x${byte.toString(16).padStart(2, "0")}`;

const ESCAPES = new Map([
  ["\n", "\\n"],
  ["\r", "\\r"],
  ["\t", "\\t"],
]);

/** A token with its outer spaces seen, and what else cannot be seen. @param {string} token */
export function visible(token) {
  const inner = token.replace(/^ +| +$/g, "");
  const spaces = /^( *).*?( *)$/s.exec(token);
  const [before, after] = inner ? [spaces[1], spaces[2]] : [token, ""];
  const shown = inner.replace(/\p{Cc}/gu, (sign) => {
    return ESCAPES.get(sign) ?? hex(sign.charCodeAt(0));
  });
  return "␣".repeat(before.length) + shown + "␣".repeat(after.length);
}

/** Tokens as running text, with their spaces. @param {string[]} tokens */
export function running(tokens) {
  if (!tokens.some((token) => /^␣|␣$/.test(token))) {
    return tokens.map((token) => (token.startsWith("##") ? token : ` ${token}`));
  }
  return tokens.map((token) => token.replace(/^␣+|␣+$/g, (ends) => " ".repeat(ends.length)));
}
