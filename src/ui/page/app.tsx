// What does the page consist of, and which view does it show?
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { keyOf } from '../../cni/attachment.ts';
import { count } from '../../lab/words.ts';
import { type Condition, conditionOf, SIGNS } from '../../node/graph/layout.ts';
import type { ShownNode } from '../shown.ts';
import { Detail } from './detail.tsx';
import { Findings } from './findings.tsx';
import { Log } from './log.tsx';
import { Networks } from './networks.tsx';
import { Overview } from './overview.tsx';
import { type Polled, shareRows, usePolled } from './polling.ts';
import { Pools } from './pools.tsx';
import { Ports } from './ports.tsx';
import { parseRoute, type Route, VIEWS, type ViewProps } from './route.ts';
import { WhyNot } from './why-not.tsx';

const EVERY_MS = 2_000;

/** The title of each view, and what draws it; `Shown` draws the one that has no search. */
const PAGES = {
  attachments: { title: 'Attachments', Page: Overview },
  networks: { title: 'Networks', Page: Networks },
  pools: { title: 'Pools', Page: Pools },
  ports: { title: 'Ports', Page: Ports },
  'why-not': { title: 'Why not?' },
  findings: { title: 'Findings', Page: Findings },
  log: { title: 'Log', Page: Log },
};

export function App(): JSX.Element {
  const polled = usePolled<ShownNode>('node', EVERY_MS, shareNode);
  const route = useRoute();
  const [query, setQuery] = useState('');
  const node = polled.value;
  const search = (text: string): void => {
    setQuery(text);
    // They have nothing to search.
    if ((route.view === 'attachment' || route.view === 'why-not') && text !== '')
      location.hash = '#/attachments';
  };
  useEffect(() => {
    if (node !== undefined) document.title = titleOf(node);
  }, [node]);
  return (
    <>
      <button type="button" class="skip" onClick={toMain}>
        Skip to content
      </button>
      <header>
        <div class="bar">
          <h1>
            <span class="brand">catena</span> <span>{node?.hostname ?? ''}</span>
          </h1>
          <SearchField query={query} onQuery={search} />
          <Status polled={polled} />
        </div>
        <Navigation current={route.view} />
      </header>
      <main id="main" tabIndex={-1}>
        {polled.problem !== undefined && (
          <p class="notice broken" role="alert">
            {polled.problem}
            {polled.isOver ? '. Run "catena ui" again for a new address.' : '. Trying again.'}
          </p>
        )}
        {node === undefined ? (
          polled.problem === undefined && <p class="quiet">Reading the node …</p>
        ) : (
          <Shown route={route} node={node} query={query} />
        )}
      </main>
      <footer class="quiet">
        <p>
          <kbd>/</kbd> search, <kbd>↑</kbd> <kbd>↓</kbd> move in the list, <kbd>Enter</kbd> open,{' '}
          <kbd>Esc</kbd> back. This page changes nothing on the node.
        </p>
      </footer>
    </>
  );
}

function Shown({ route, node, query }: ViewProps & { readonly route: Route }): JSX.Element {
  if (route.view === 'attachment')
    return <Detail key={keyOf(route.key)} node={node} id={route.key} trace={route.trace} />;
  if (route.view === 'why-not') return <WhyNot node={node} from={route.from} to={route.to} />;
  const { Page } = PAGES[route.view];
  return <Page node={node} query={query} />;
}

function Navigation({ current }: { readonly current: Route['view'] }): JSX.Element {
  const shown = current === 'attachment' ? 'attachments' : current;
  return (
    <nav aria-label="Views">
      <ul>
        {VIEWS.map(view => (
          <li key={view}>
            <a href={`#/${view}`} aria-current={view === shown ? 'page' : undefined}>
              {PAGES[view].title}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function Status({ polled: { value, problem } }: { readonly polled: Polled<ShownNode> }): JSX.Element {
  const text = useMemo(() => (value === undefined ? '' : summaryOf(value)), [value]);
  const isBad = value?.attachments.some(one => conditionOf(one) === 'broken') === true;
  return (
    <p class={isBad ? 'status bad' : 'status'} role="status">
      {problem !== undefined && <strong>not live: </strong>}
      {text}
    </p>
  );
}

/** What a tab shows of a page that is not looked at. */
function titleOf({ hostname, attachments }: ShownNode): string {
  const marks = (['broken', 'unsettled'] as const)
    .map(condition => [SIGNS[condition].sign, numberOf(attachments, condition)] as const)
    .filter(([, number]) => number > 0);
  return `${marks.map(([sign, number]) => `${sign} ${number} · `).join('')}${hostname} · catena`;
}

function summaryOf({ attachments, daemon, checkedAt }: ShownNode): string {
  const found = (['broken', 'unsettled', 'gone'] as const).flatMap(condition => {
    const number = numberOf(attachments, condition);
    return number > 0 ? `${number} ${condition}` : condition === 'broken' ? 'none broken' : [];
  });
  const health = checkedAt === undefined ? 'CHECK is running' : found.join(', ');
  const states = {
    none: 'no daemon',
    gone: 'daemon gone',
    silent: 'daemon silent',
    answers: 'daemon answers',
  };
  return `${count(attachments.length, 'attachment')}, ${health}, ${states[daemon.state]}`;
}

function numberOf(attachments: ShownNode['attachments'], condition: Condition): number {
  return attachments.filter(one => conditionOf(one) === condition).length;
}

function shareNode(before: ShownNode | undefined, now: ShownNode): ShownNode {
  return { ...now, attachments: shareRows(before?.attachments ?? [], now.attachments, keyOf) };
}

/** The view that the address names; after a change, its heading has the focus. */
function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  const isFirst = useRef(true);
  useEffect(() => {
    const change = (): void => setRoute(parseRoute(location.hash));
    addEventListener('hashchange', change);
    return () => removeEventListener('hashchange', change);
  }, []);
  useEffect(() => {
    if (!isFirst.current && route.view !== 'attachments')
      document.querySelector<HTMLElement>('main h2')?.focus();
    isFirst.current = false;
  }, [route]);
  return route;
}

/** The fragment names the view, so this is no link. */
function toMain(): void {
  document.getElementById('main')?.focus();
}

/** A field that `/` leads to; Escape empties it. */
function SearchField(props: {
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
