// What does the first view show: the picture of the node, and below it the list of attachments?

import type { JSX } from 'preact';
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { count } from '../../lab/words.ts';
import {
  CONDITIONS,
  conditionOf,
  groupsOf,
  isNarrow,
  isProblem,
  layOut,
  linesOf,
  type PlacedGroup,
  SIGNS,
  STUB,
  TRUNK_X,
  worstFirst,
} from '../../node/graph/layout.ts';
import type { NodeAttachment } from '../../node/model.ts';
import { titleOf, withoutStandIns } from '../../node/words.ts';
import type { ShownNode } from '../shown.ts';
import { Command, Sign } from './badge.tsx';
import { AttachmentList } from './list.tsx';
import { hrefOf, type ViewProps } from './route.ts';
import { matcherOf, textOf } from './search.ts';

const FIRST_WIDTH = 700;
/** As the style sheet has them. */
const TITLE = { size: 13, weight: 600 };
const NOTE = { size: 12 };

/** To a screen reader it is one image: the list below has the same, with links. */
function Picture(props: {
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
            <Sign look={one} sign={SIGNS[one].sign} word={one} /> {SIGNS[one].meaning}
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
  const below = [
    ...notes.map(note => [note, 'note'] as const),
    ...uplinks.map(name => [`⇅ uplink ${name}`, 'note uplink'] as const),
  ];
  return (
    <g>
      <path class={`wire ${look}`} d={`M${TRUNK_X} ${box.y + 16}H${box.x}`} />
      <path class={`wire ${look}`} d={linesOf(group, width).join('')} />
      <rect class={`box ${look}`} {...box} rx="6" />
      <text class="title" x={box.x + 10} y={box.y + 22}>
        {fit(title, box.width - (kind === 'bridge' ? 68 : 20), TITLE)}{' '}
        <tspan class="note">{kind === 'bridge' ? 'bridge' : ''}</tspan>
      </text>
      {below.map(([text, look], i) => (
        <text key={text} class={look} x={box.x + 10} y={box.y + 22 + 17 * (i + 1)}>
          {fit(text, box.width - 20, NOTE)}
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

/** Picture and list; the search and the switch select in both. */
export function Overview({ node, query }: ViewProps): JSX.Element {
  const [onlyProblems, setOnlyProblems] = useState(false);
  const shown = useMemo(() => {
    const matches = matcherOf(query);
    // A runtime's loopback attachment has nothing to show.
    const all = withoutStandIns(node.attachments);
    const wanted = all.filter(one => matches(textOf(one)) && (!onlyProblems || isProblem(conditionOf(one))));
    return { all: all.length, rows: worstFirst(wanted) };
  }, [node.attachments, query, onlyProblems]);
  const { all, rows } = shown;
  return (
    <>
      {(all > 0 || node.bridges.length > 0) && (
        <section aria-labelledby="picture-title">
          <h2 id="picture-title" tabIndex={-1}>
            Node
          </h2>
          <Picture node={node} shown={rows} />
        </section>
      )}
      <section aria-labelledby="list-title">
        <div class="bar">
          <h2 id="list-title">Attachments</h2>
          <p class="quiet" role="status">
            {rows.length === all ? count(all, 'attachment') : `${rows.length} of ${count(all, 'attachment')}`}
          </p>
          <label class="switch">
            <input
              type="checkbox"
              checked={onlyProblems}
              onChange={event => setOnlyProblems(event.currentTarget.checked)}
            />{' '}
            problems only
          </label>
        </div>
        {node.checkProblem !== undefined && (
          <p class="notice unsettled">CHECK could not be run: {node.checkProblem}</p>
        )}
        {node.notes.map(note => (
          <p class="notice unsettled" key={note}>
            {note}
          </p>
        ))}
        {all === 0 && <NextSteps node={node} />}
        {all > 0 && rows.length === 0 && <p class="quiet">Nothing matches.</p>}
        {rows.length > 0 && <AttachmentList rows={rows} time={node.time} />}
      </section>
    </>
  );
}

/** What a node without attachments needs: a list, or a container. */
function NextSteps({ node: { networks } }: Pick<ViewProps, 'node'>): JSX.Element {
  const configured = networks.filter(({ file }) => file !== undefined).map(({ name }) => name);
  const [first = '<network>'] = configured;
  const steps: readonly (readonly [what: string, command: string])[] =
    configured.length === 0
      ? [
          ['Answer four questions, and have a list written:', 'catena init'],
          ['See on a fake host what it does:', 'catena try <list>'],
          ['Give it to the runtimes of this node:', 'catena install <list> --as-default'],
        ]
      : [
          ['With podman:', `podman run --network ${first} -p 8080:80 <image>`],
          ['By hand, to a namespace that "ip netns add web" made:', `catena add ${first} web`],
        ];
  return (
    <>
      <p>No container is attached to a network.</p>
      <p>
        {configured.length === 0
          ? 'No list configures a network here. What comes next:'
          : `Configured: ${configured.join(', ')}. What comes next:`}
      </p>
      <ol class="steps">
        {steps.map(([what, command]) => (
          <li key={command}>
            {what} <Command text={command} />
          </li>
        ))}
      </ol>
      <p>
        <a href="#/networks">Networks</a> shows which list each runtime uses, and why.
      </p>
    </>
  );
}
