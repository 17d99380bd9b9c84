// The words of a sentence, and the vectors that are made up of their spelling.
import { visible } from "./tokens.js";

const ALONE =
  /[\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{3ffff}]/u;
// The class of a character, as one letter, of which the first that fits counts.
/** @type {[string, RegExp][]} */
const KINDS = [
  [" ", /[\s\u200b\ufeff]/u],
  ["m", /[\p{M}\u{1f3fb}-\u{1f3ff}\u00ad]/u],
  ["j", /['’\-\u2010\u2011·]/u],
  ["n", /[.,:]/u],
  ["z", /[\u200c\u200d]/u],
  ["r", /[\u{1f1e6}-\u{1f1ff}]/u],
  ["d", /\p{Nd}/u],
  ["p", /[^\p{L}\p{N}_]/u],
  ["h", ALONE],
];
const PIECE = /[wd][wdmz]*(?:(?:j|(?<=d)n(?=d))[wd][wdmz]*)*|hm*|rr|[^ ]m*(?:z[^ ]m*)*/g;
const LONGEST_NAME = 16;
const SEED = 123;
const DIM = 4;

/** The words and punctuation marks of a text. @param {string} text */
export function split(text) {
  const signs = [...text.normalize("NFC")];
  const kinds = signs.map((sign) => KINDS.find(([, fits]) => fits.test(sign))?.[0] ?? "w").join("");
  const found = /** @type {{token: string, end: number}[]} */ ([]);
  for (const { 0: piece, index } of kinds.matchAll(PIECE)) {
    const end = index + piece.length;
    const token = signs.slice(index, end).join("");
    const before = found.at(-1);
    if (before?.end === index && repeats(before.token, token)) {
      before.token += token;
      before.end = end;
    } else found.push({ token, end });
  }
  return found.map(({ token }) => token);
}

// Whether a mark repeats the one before it, as in "...".
/** @param {string} before @param {string} mark */
function repeats(before, mark) {
  return /^[\p{Po}\p{Pd}]$/u.test(mark) && new Set(before + mark).size === 1;
}

export const isWord = (/** @type {string} */ token) => /[\p{L}\p{N}]/u.test(token);

/** Words made printable, short and distinct. @param {string[]} words */
export function names(words) {
  const short = words.map((word) => {
    const shown = visible(word) || "␣";
    return shown.length > LONGEST_NAME ? `${shown.slice(0, LONGEST_NAME - 1)}…` : shown;
  });
  return short.map((name, at) => {
    if (short.filter((other) => other === name).length === 1) return name;
    const count = short.slice(0, at + 1).filter((other) => other === name).length;
    return name + String(count).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[Number(digit)]);
  });
}

/** A meaningless vector of a token, the same in every sentence. @param {string} token */
export function generated(token) {
  const bytes = shake256(new TextEncoder().encode(`${SEED}:${token}`), 8 * DIM);
  return Array.from({ length: DIM }, (_, at) => {
    const drawn = bytes.slice(8 * at, 8 * at + 8).reduce((all, byte) => (all << 8n) | byte, 0n);
    const place = (Number(drawn >> 12n) + 0.5) / 2 ** 52;
    return Number(quantile(place).toFixed(2)) + 0;
  });
}

const RATE = 136;
const MASK = (1n << 64n) - 1n;

// SHAKE256 of FIPS 202, as bytes of at most one block.
/** @param {Uint8Array} message @param {number} length @returns {bigint[]} */
function shake256(message, length) {
  const blocks = Math.floor(message.length / RATE) + 1;
  const padded = new Uint8Array(blocks * RATE);
  padded.set(message);
  padded[message.length] ^= 0x1f;
  padded[padded.length - 1] ^= 0x80;
  const lanes = new Array(25).fill(0n);
  for (let from = 0; from < padded.length; from += RATE) {
    for (let at = 0; at < RATE; at++) {
      lanes[at >> 3] ^= BigInt(padded[from + at]) << BigInt(8 * (at % 8));
    }
    permute(lanes);
  }
  return Array.from({ length }, (_, at) => (lanes[at >> 3] >> BigInt(8 * (at % 8))) & 255n);
}

/** Keccak-f[1600]. @param {bigint[]} lanes */
function permute(lanes) {
  let register = 1;
  for (let round = 0; round < 24; round++) {
    const columns = [0, 1, 2, 3, 4].map((x) => {
      return lanes[x] ^ lanes[x + 5] ^ lanes[x + 10] ^ lanes[x + 15] ^ lanes[x + 20];
    });
    for (let at = 0; at < 25; at++) {
      lanes[at] ^= columns[(at + 4) % 5] ^ turned(columns[(at + 1) % 5], 1);
    }
    let [x, y, moved] = [1, 0, lanes[1]];
    for (let step = 0; step < 24; step++) {
      [x, y] = [y, (2 * x + 3 * y) % 5];
      const kept = lanes[x + 5 * y];
      lanes[x + 5 * y] = turned(moved, (((step + 1) * (step + 2)) / 2) % 64);
      moved = kept;
    }
    for (let row = 0; row < 25; row += 5) {
      const own = lanes.slice(row, row + 5);
      for (let at = 0; at < 5; at++) {
        lanes[row + at] = own[at] ^ (~own[(at + 1) % 5] & MASK & own[(at + 2) % 5]);
      }
    }
    for (let bit = 0; bit < 7; bit++) {
      register = ((register << 1) ^ ((register >> 7) * 0x71)) % 256;
      if (register & 2) lanes[0] ^= 1n << ((1n << BigInt(bit)) - 1n);
    }
  }
}

/** @param {bigint} lane @param {number} by */
const turned = (lane, by) => ((lane << BigInt(by)) | (lane >> BigInt(64 - by))) & MASK;

// Wichura 1988 (algorithm AS 241), as Python's `statistics` has them: near the middle, in the tails,
// and far out; of each the numerator and the denominator, the highest power first.
const MIDDLE = [
  [
    2509.0809287301227, 33430.57558358813, 67265.7709270087, 45921.95393154987, 13731.69376550946,
    1971.5909503065513, 133.14166789178438, 3.3871328727963665,
  ],
  [
    5226.495278852854, 28729.085735721943, 39307.89580009271, 21213.794301586597, 5394.196021424751,
    687.1870074920579, 42.31333070160091, 1,
  ],
];
const TAIL = [
  [
    0.0007745450142783414, 0.022723844989269184, 0.2417807251774506, 1.2704582524523684,
    3.6478483247632045, 5.769497221460691, 4.630337846156546, 1.4234371107496835,
  ],
  [
    1.0507500716444169e-9, 0.0005475938084995345, 0.015198666563616457, 0.14810397642748008,
    0.6897673349851, 1.6763848301838038, 2.053191626637759, 1,
  ],
];
const FAR = [
  [
    2.0103343992922881e-7, 2.7115555687434876e-5, 0.0012426609473880784, 0.026532189526576124,
    0.29656057182850487, 1.7848265399172913, 5.463784911164114, 6.657904643501103,
  ],
  [
    2.0442631033899397e-15, 1.421511758316446e-7, 1.8463183175100548e-5, 0.0007868691311456133,
    0.014875361290850615, 0.1369298809227358, 0.599832206555888, 1,
  ],
];

/** The number below which a share of the standard normal distribution lies. @param {number} share */
function quantile(share) {
  const off = share - 0.5;
  if (Math.abs(off) <= 0.425) return off * ratio(MIDDLE, 0.180625 - off * off);
  const out = Math.sqrt(-Math.log(off < 0 ? share : 1 - share));
  const size = out <= 5 ? ratio(TAIL, out - 1.6) : ratio(FAR, out - 5);
  return off < 0 ? -size : size;
}

/** @param {number[][]} polynomials @param {number} x */
function ratio([above, below], x) {
  const sum = (/** @type {number[]} */ terms) => terms.reduce((all, term) => all * x + term, 0);
  return sum(above) / sum(below);
}
