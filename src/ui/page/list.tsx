// How are the attachments listed, a thousand of them as well, and how does the keyboard move among them?
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { keyOf } from '../../cni/attachment.ts';
import { conditionOf, isProblem } from '../../node/graph/layout.ts';
import type { NodeAttachment } from '../../node/model.ts';
import { renderAge, renderPort, titleOf } from '../../node/words.ts';
import { Badge } from './badge.tsx';
import { hrefOf } from './route.ts';
import { type Column, Name, Table, Whole } from './table.tsx';

const AGES_EVERY_MS = 5_000;

/** The row from which the list was left, which has the focus on return. */
let left = '';

/** One tab stop: the arrow keys, Home and End move in it. */
export function AttachmentList(props: {
  readonly rows: readonly NodeAttachment[];
  /** ISO time of the node. */
  readonly time: string;
}): JSX.Element {
  const { rows, time } = props;
  const now = useNodeTime(time);
  const [current, setCurrent] = useState(left);
  const active = rows.some(one => keyOf(one) === current) ? current : rows[0] && keyOf(rows[0]);
  useEffect(() => {
    const row = left === '' ? null : document.querySelector<HTMLElement>('[data-row][tabindex="0"]');
    if (row !== null && row.dataset.row === left) row.focus();
    left = '';
  }, []);
  const listed = rows.map(one => {
    const age = one.since === undefined ? '–' : renderAge(one.since, now);
    return { one, age, isActive: keyOf(one) === active, onFocus: setCurrent };
  });
  return (
    <Table<Listed>
      caption="Attachments, those with problems first"
      columns={COLUMNS}
      rows={listed}
      keyOf={({ one }) => keyOf(one)}
      classOf={({ one }) => conditionOf(one)}
      below={({ one }) => {
        const why = one.health?.problem ?? one.why;
        return isProblem(conditionOf(one)) && why !== undefined && <div class="why">{why}</div>;
      }}
      isSame={(a, b) => a.one === b.one && a.age === b.age && a.isActive === b.isActive}
      onKeyDown={move}
    />
  );
}

interface Listed {
  readonly one: NodeAttachment;
  readonly age: string;
  readonly isActive: boolean;
  readonly onFocus: (key: string) => void;
}

const COLUMNS: readonly Column<Listed>[] = [
  {
    title: 'Name',
    cell: ({ one, isActive, onFocus }) => (
      <>
        <a
          href={hrefOf(one)}
          data-row={keyOf(one)}
          tabIndex={isActive ? 0 : -1}
          onFocus={() => onFocus(keyOf(one))}
          onClick={() => {
            left = keyOf(one);
          }}
        >
          <Name text={titleOf(one)} />
        </a>
        <span class="quiet"> {one.ifname}</span>
      </>
    ),
  },
  { title: 'Network', cell: ({ one }) => one.network },
  {
    title: 'Address',
    cell: ({ one }) => <Whole words={one.addresses.map(text => text.replace(/\/\d+$/, ''))} />,
  },
  { title: 'Ports', cell: ({ one }) => <Whole words={one.ports.map(renderPort)} /> },
  { title: 'Age', cell: ({ age }) => age, isNumber: true },
  { title: 'Health', cell: ({ one }) => <Badge condition={conditionOf(one)} /> },
];

function move(event: KeyboardEvent): void {
  const links = Array.from(document.querySelectorAll<HTMLElement>('[data-row]'));
  const at = links.indexOf(document.activeElement as HTMLElement);
  if (at < 0) return;
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 }[event.key];
  const link = to === undefined ? undefined : links[to];
  if (link === undefined) return;
  event.preventDefault();
  link.focus();
}

/** The node's clock, which may differ from the browser's. */
export function useNodeTime(time: string): number {
  const [[offset, then], setOffset] = useState([Date.parse(time) - Date.now(), time]);
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick(n => n + 1), AGES_EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  if (then !== time) setOffset([Date.parse(time) - Date.now(), time]);
  return Date.now() + offset;
}
