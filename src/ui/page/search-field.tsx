// How is the page searched from anywhere?
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

/** A field that `/` leads to; Escape empties it. */
export function SearchField(props: {
  readonly query: string;
  readonly onQuery: (query: string) => void;
}): JSX.Element {
  const { query, onQuery } = props;
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const isTyping = event.target instanceof HTMLInputElement;
      if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      field.current?.focus();
      field.current?.select();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === 'Escape') onQuery('');
    if (event.key !== 'ArrowDown' && event.key !== 'Enter') return;
    const row = document.querySelector<HTMLElement>('[data-row]');
    if (row === null) return;
    event.preventDefault();
    row.focus();
  };
  return (
    <search>
      <label>
        <span class="unseen">Search (press /)</span>
        <input
          ref={field}
          type="search"
          placeholder="Search: name, address, port, device …"
          value={query}
          onInput={event => onQuery(event.currentTarget.value)}
          onKeyDown={onKey}
          aria-keyshortcuts="/"
        />
      </label>
    </search>
  );
}
