// How are a condition and a command shown: a sign, a word and a colour, and text that can be typed elsewhere?

import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { type Condition, SIGNS } from '../../node/graph/layout.ts';

export function Sign(props: {
  /** Class of the colours. */
  readonly look: string;
  readonly sign: string;
  readonly word: string;
  readonly title?: string;
}): JSX.Element {
  const { look, sign, word, title } = props;
  return (
    <span class={`badge ${look}`} title={title}>
      <span aria-hidden="true">{sign}</span> {word}
    </span>
  );
}

export function Badge({ condition }: { readonly condition: Condition }): JSX.Element {
  const { sign, meaning } = SIGNS[condition];
  return <Sign look={condition} sign={sign} word={condition} title={meaning} />;
}

/** The outcome of a request or a plugin: 0 is success, else an error code of the protocol. */
export function Outcome({ code }: { readonly code: number }): JSX.Element {
  if (code === 0) return <Sign look="sound" sign="✓" word="success" />;
  return <Sign look="broken" sign="✕" word={`code ${code}`} />;
}

const COPIED_MS = 2_000;
/** A mend may be a sentence instead, which is not for a terminal. */
const PROGRAM =
  /^(catena|chmod|chown|conntrack|dmesg|ebtables|ip|ip6?tables|kill|ls|modprobe|mount|nft|nsenter|podman|rm|sysctl|systemctl|tc)\b/;

/** A command with a button that copies it; any other text as it is. */
export function Command({ text }: { readonly text: string }): JSX.Element {
  const shown = useRef<HTMLElement>(null);
  const [isCopied, setCopied] = useState(false);
  if (!PROGRAM.test(text)) return <span>{text}</span>;
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      setTimeout(() => setCopied(false), COPIED_MS);
    } catch {
      // The browser does not allow it: the user copies what is selected.
      if (shown.current !== null) getSelection()?.selectAllChildren(shown.current);
    }
  };
  return (
    <span class="command">
      <code ref={shown}>{text}</code>
      <button type="button" onClick={copy} aria-label={`Copy: ${text}`}>
        {isCopied ? 'Copied' : 'Copy'}
      </button>
    </span>
  );
}

/** The command after which a problem is gone. */
export function Fix({ mend }: { readonly mend: string | undefined }): JSX.Element | null {
  if (mend === undefined) return null;
  return (
    <div class="mend">
      Fix: <Command text={mend} />
    </div>
  );
}
