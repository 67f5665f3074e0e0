// How are the attachments listed, a thousand of them as well, and how does the keyboard move among them?
import { Component, type JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { keyOf } from '../../cni/attachment.ts';
import { conditionOf, isProblem } from '../../node/graph/layout.ts';
import type { NodeAttachment } from '../../node/model.ts';
import { renderAge, renderPort, titleOf } from '../../node/words.ts';
import { Badge } from './badge.tsx';
import { hrefOf } from './route.ts';
import { Cell, Frame, Name, Row, Whole } from './table.tsx';

const AGES_EVERY_MS = 5_000;
const TITLES = ['Name', 'Network', 'Address', 'Ports', 'Age', 'Health'];

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
  return (
    <Frame caption="Attachments, those with problems first" titles={TITLES} onKeyDown={move}>
      {rows.map(one => {
        const key = keyOf(one);
        const age = one.since === undefined ? '–' : renderAge(one.since, now);
        return <Attached key={key} one={one} age={age} isActive={key === active} onFocus={setCurrent} />;
      })}
    </Frame>
  );
}

interface AttachedProps {
  readonly one: NodeAttachment;
  readonly age: string;
  readonly isActive: boolean;
  readonly onFocus: (key: string) => void;
}

/** It is drawn again only if it has changed. */
class Attached extends Component<AttachedProps> {
  override shouldComponentUpdate(next: AttachedProps): boolean {
    const { one, age, isActive } = this.props;
    return next.one !== one || next.age !== age || next.isActive !== isActive;
  }

  override render({ one, age, isActive, onFocus }: AttachedProps): JSX.Element {
    const key = keyOf(one);
    const condition = conditionOf(one);
    const why = one.health?.problem ?? one.why;
    return (
      <Row
        look={condition}
        width={TITLES.length}
        below={isProblem(condition) && why !== undefined && <div class="why">{why}</div>}
      >
        <Cell title="Name" isFirst>
          <a
            href={hrefOf(one)}
            data-row={key}
            tabIndex={isActive ? 0 : -1}
            onFocus={() => onFocus(key)}
            onClick={() => {
              left = key;
            }}
          >
            <Name text={titleOf(one)} />
          </a>
          <span class="quiet"> {one.ifname}</span>
        </Cell>
        <Cell title="Network">{one.network}</Cell>
        <Cell title="Address">
          <Whole words={one.addresses.map(text => text.replace(/\/\d+$/, ''))} />
        </Cell>
        <Cell title="Ports">
          <Whole words={one.ports.map(renderPort)} />
        </Cell>
        <Cell title="Age" isNumber>
          {age}
        </Cell>
        <Cell title="Health">
          <Badge condition={condition} />
        </Cell>
      </Row>
    );
  }
}

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
