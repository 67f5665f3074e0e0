// How does the node look: its bridges, the host ends on them, the containers behind these, and the way out?
import type { JSX } from 'preact';
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { count } from '../../lab/words.ts';
import { CONDITIONS, conditionOf, isProblem, SIGNS } from '../../node/graph/condition.ts';
import {
  groupsOf,
  isNarrow,
  layOut,
  linesOf,
  type PlacedGroup,
  STUB,
  TRUNK_X,
} from '../../node/graph/layout.ts';
import type { NodeAttachment } from '../../node/model.ts';
import { titleOf } from '../../node/words.ts';
import type { ShownNode } from '../shown.ts';
import { hrefOf } from './route.ts';

const FIRST_WIDTH = 700;
/** As the style sheet has them. */
const TITLE = { size: 13, weight: 600 };
const NOTE = { size: 12 };

/** To a screen reader it is one image: the list below has the same, with links. */
export function Picture(props: {
  readonly node: ShownNode;
  /** Others are left out. */
  readonly shown: readonly NodeAttachment[];
}): JSX.Element {
  const { node, shown } = props;
  const [frame, width] = useWidth();
  const layout = useMemo(() => layOut(groupsOf(node.bridges, shown), width), [node.bridges, shown, width]);
  const conditions = shown.map(conditionOf);
  const last = layout.groups.findLast(({ kind }) => kind !== 'none');
  return (
    <div class="picture" ref={frame}>
      <svg
        width={layout.width}
        height={layout.height}
        viewBox={`0 0 ${layout.width} ${layout.height}`}
        role="img"
        aria-label={`${count(node.bridges.length, 'bridge')}, ${count(shown.length, 'attachment')}, ${conditions.filter(isProblem).length} with problems`}
      >
        {last !== undefined && (
          <path class="wire" d={`M${TRUNK_X} ${layout.host.height}V${last.box.y + 16}`} />
        )}
        <rect class="host" {...layout.host} rx="6" />
        <text class="title" x={layout.host.x + 10} y={layout.host.y + 22}>
          {fit(node.hostname, layout.host.width - 20, TITLE)}
        </text>
        {layout.groups.map(group => (
          <GroupPicture key={group.key} group={group} width={width} />
        ))}
      </svg>
      <ul class="legend quiet" aria-label="Signs">
        {CONDITIONS.filter(one => conditions.includes(one)).map(one => (
          <li key={one}>
            <span class={`badge ${one}`}>
              <span aria-hidden="true">{SIGNS[one].sign}</span> {one}
            </span>{' '}
            {SIGNS[one].meaning}
          </li>
        ))}
      </ul>
    </div>
  );
}

function GroupPicture({
  group,
  width,
}: {
  readonly group: PlacedGroup;
  readonly width: number;
}): JSX.Element {
  const { box, kind, title, notes, uplinks, cells, isLarge, isUp } = group;
  const look = `${isUp ? '' : 'down'} ${kind}`;
  return (
    <g>
      <path class={`wire ${look}`} d={`M${TRUNK_X} ${box.y + 16}H${box.x}`} />
      <path class={`wire ${look}`} d={linesOf(group, width).join('')} />
      <rect class={`box ${look}`} {...box} rx="6" />
      <text class="title" x={box.x + 10} y={box.y + 22}>
        {fit(title, box.width - (kind === 'bridge' ? 68 : 20), TITLE)}{' '}
        <tspan class="note">{kind === 'bridge' ? 'bridge' : ''}</tspan>
      </text>
      {notes.map((note, i) => (
        <text key={note} class="note" x={box.x + 10} y={box.y + 22 + 17 * (i + 1)}>
          {fit(note, box.width - 20, NOTE)}
        </text>
      ))}
      {uplinks.map((name, i) => (
        <text key={name} class="note uplink" x={box.x + 10} y={box.y + 22 + 17 * (i + 1 + notes.length)}>
          {fit(`⇅ uplink ${name}`, box.width - 20, NOTE)}
        </text>
      ))}
      {cells.map(({ one, ...place }) => (
        <CellPicture key={hrefOf(one)} one={one} place={place} isLarge={isLarge} isNarrow={isNarrow(width)} />
      ))}
    </g>
  );
}

function CellPicture(props: {
  readonly one: NodeAttachment;
  readonly place: { readonly x: number; readonly y: number; readonly width: number; readonly height: number };
  readonly isLarge: boolean;
  readonly isNarrow: boolean;
}): JSX.Element {
  const { one, place, isLarge } = props;
  const { x, y, width, height } = place;
  const condition = conditionOf(one);
  const { sign, meaning } = SIGNS[condition];
  const [address = ''] = one.addresses;
  const middle = x + width / 2;
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: for the mouse only; the list has links
    <g
      class={`cell ${condition}`}
      onClick={() => {
        location.hash = hrefOf(one);
      }}
    >
      <title>{`${titleOf(one)} ${one.ifname} on ${one.network}: ${condition}, ${meaning}`}</title>
      {one.hostDevice !== undefined && <path class="wire" d={`M${middle} ${y - STUB}V${y}`} />}
      <rect {...place} rx={isLarge ? 6 : 3} />
      {isLarge ? (
        <>
          <text class="title" x={x + 9} y={y + 19}>
            {fit(`${sign} ${titleOf(one)}`, width - 18, TITLE)}
          </text>
          <text class="note" x={x + 9} y={y + 35}>
            {fit(address.replace(/\/\d+$/, ''), width - 18, NOTE)}
          </text>
          <text class="note" x={x + 9} y={y + 50}>
            {fit(one.hostDevice?.name ?? 'no host end', width - 18, NOTE)}
          </text>
        </>
      ) : (
        condition !== 'sound' && (
          <text class="sign" x={middle} y={y + height - 2}>
            {sign}
          </text>
        )
      )}
    </g>
  );
}

/** The width of an element, followed. */
function useWidth(): [{ current: HTMLDivElement | null }, number] {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(FIRST_WIDTH);
  useLayoutEffect(() => {
    const { current } = frame;
    if (current === null) return;
    const measure = (): void => setWidth(Math.max(240, Math.floor(current.clientWidth)));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(current);
    return () => observer.disconnect();
  }, []);
  return [frame, width];
}

const context = document.createElement('canvas').getContext('2d');
let family = '';

/** The text, or its begin and end with dots between them, at most so many pixels wide. */
function fit(text: string, width: number, font: { readonly size: number; readonly weight?: number }): string {
  if (context === null) return text;
  family ||= getComputedStyle(document.body).fontFamily;
  context.font = `${font.weight ?? 400} ${font.size}px ${family}`;
  let shown = text;
  for (let kept = text.length - 1; kept > 0 && context.measureText(shown).width > width; kept--)
    // The end of a long name tells more of it than the middle.
    shown = `${text.slice(0, Math.ceil((kept * 2) / 3))}…${text.slice(-Math.floor(kept / 3) || text.length)}`;
  return shown;
}
