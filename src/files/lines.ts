// Which lines are in a text that arrives in pieces?

export class LineSplitter {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  readonly #mostChars: number;
  #pieces: string[] = [];
  #size = 0;

  constructor(mostChars = Number.POSITIVE_INFINITY) {
    this.#mostChars = mostChars;
  }

  /**
   * @returns the lines that this piece completes, without line breaks
   * @throws Error for a line that is too long
   */
  push(piece: Uint8Array): string[] {
    const [first = '', ...others] = this.#decoder.decode(piece, { stream: true }).split('\n');
    this.#pieces.push(first);
    this.#size += first.length;
    if (this.#size > this.#mostChars) throw new Error('a line of its reply is too long');
    const rest = others.pop();
    if (rest === undefined) return [];
    const whole = this.#pieces.join('');
    [this.#pieces, this.#size] = [[rest], rest.length];
    return [whole, ...others];
  }
}
