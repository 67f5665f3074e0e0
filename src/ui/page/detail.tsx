// What is known about one attachment: its facts, its chain and what each plugin added, its requests in time?

import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import { type AttachmentId, keyOf } from '../../cni/attachment.ts';
import type { Result } from '../../cni/result.ts';
import { diffResults } from '../../lab/diff.ts';
import { count, renderTime } from '../../lab/words.ts';
import { conditionOf } from '../../node/graph/layout.ts';
import type { NodeAttachment, NodeDevice } from '../../node/model.ts';
import { renderAge, renderMoment, renderPort, renderRates, titleOf } from '../../node/words.ts';
import type { RequestSummary, ShownCall, ShownList, ShownNode, ShownPlugin, ShownRequest } from '../shown.ts';
import { Badge, Fix, Outcome } from './badge.tsx';
import { useNodeTime } from './list.tsx';
import { usePolled } from './polling.ts';
import { renderSize } from './pool-map.ts';
import { hrefOf } from './route.ts';
import { type Column, Table } from './table.tsx';
import { barOf, rowsOf, type WaterfallRow } from './waterfall-rows.ts';

/** A bar for each plugin, in the time of the request; the numbers beside it say the same. */
function Waterfall({ record }: { readonly record: ShownRequest }): JSX.Element {
  const rows = rowsOf(record);
  const columns: readonly Column<WaterfallRow>[] = [
    { title: 'Plugin', cell: ({ name }) => name },
    { title: 'When', cell: row => <Bar row={row} totalMs={record.durationMs} /> },
    { title: 'Start', cell: ({ startMs }) => renderTime(startMs), isNumber: true },
    { title: 'Took', cell: ({ durationMs }) => renderTime(durationMs), isNumber: true },
    { title: 'Kernel', cell: row => <Kernel row={row} /> },
    { title: 'Outcome', cell: ({ code }) => code !== undefined && <Outcome code={code} /> },
  ];
  return (
    <section aria-labelledby="waterfall-title">
      <h4 id="waterfall-title">
        {record.verb} {record.id}: {renderTime(record.durationMs)}
        {record.warm ? ', by the daemon' : ', by a command'}
      </h4>
      {record.message !== undefined && (
        <p class="notice broken">{[record.message, record.details].filter(Boolean).join(': ')}</p>
      )}
      <Table caption="When each plugin ran" columns={columns} rows={rows} keyOf={({ key }) => key} />
    </section>
  );
}

function Bar({ row, totalMs }: { readonly row: WaterfallRow; readonly totalMs: number }): JSX.Element {
  const { x, width } = barOf(row, totalMs);
  return (
    <svg class="when" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
      <rect class="track" width="100" height="10" />
      <rect class={row.code ? 'bad' : 'took'} x={x} width={width} height="10" />
    </svg>
  );
}

function Kernel({ row: { transactions } }: { readonly row: WaterfallRow }): JSX.Element | null {
  if (transactions.length === 0) return null;
  return (
    <details>
      <summary>{count(transactions.length, 'transaction')}</summary>
      <ul class="changes">
        {transactions.map(({ family, what, startMs, durationMs, error }) => (
          <li key={`${startMs} ${what}`}>
            <code>{family}</code> {what}, {durationMs.toFixed(2)} ms{error !== undefined && `: ${error}`}
          </li>
        ))}
      </ul>
    </details>
  );
}

/** The plugins in order: with their results if a trace of the ADD is stored, else by name. */
function Chain(props: {
  readonly one: NodeAttachment | undefined;
  readonly node: ShownNode;
  readonly record: ShownRequest | undefined;
  /** What the list configures. */
  readonly list: ShownList | undefined;
}): JSX.Element {
  const { one, node, record, list } = props;
  const configured = node.networks.find(({ name }) => name === one?.network)?.plugins ?? [];
  const executables = one?.origin.executables ?? [];
  const names = executables.length > 0 ? executables : configured;
  return (
    <section aria-labelledby="chain-title">
      <h3 id="chain-title">Chain</h3>
      <ol class="chain">
        {record === undefined
          ? names.map((name, i) => (
              <li key={i}>
                <strong>{name.split('/').at(-1)}</strong>{' '}
                <span class="quiet">{name.includes('/') && name}</span>
                <Explained list={list} type={name.split('/').at(-1)} />
              </li>
            ))
          : record.plugins.map((plugin, at) => (
              <Plugin
                key={at}
                plugin={plugin}
                changes={changesOf(record.plugins, at)}
                list={plugin.network === record.network ? list : undefined}
              />
            ))}
      </ol>
    </section>
  );
}

function Plugin(props: {
  readonly plugin: ShownCall;
  readonly changes: readonly string[];
  readonly list: ShownList | undefined;
}): JSX.Element {
  const { plugin, changes, list } = props;
  const { type, executable, verb, code, durationMs, message, details, stderr, result } = plugin;
  return (
    <li>
      <div class="bar">
        <strong>{type}</strong> <Outcome code={code} />
        <span class="quiet">
          {verb}, {renderTime(durationMs)}
        </span>
      </div>
      <div class="quiet path">{executable}</div>
      <Explained list={list} type={type} />
      {message !== undefined && <p class="notice broken">{[message, details].filter(Boolean).join(': ')}</p>}
      {changes.length > 0 && (
        <ul class="changes">
          {changes.map(change => (
            <li key={change}>
              <code>{change}</code>
            </li>
          ))}
        </ul>
      )}
      {stderr !== undefined && stderr !== '' && <Folded title="standard error" text={stderr} />}
      {result !== undefined && <Folded title="result" text={JSON.stringify(result, null, 2)} />}
    </li>
  );
}

function Folded({ title, text }: { readonly title: string; readonly text: string }): JSX.Element {
  return (
    <details>
      <summary>{title}</summary>
      <pre>{text}</pre>
    </details>
  );
}

/** Compared with the plugin before it in the same network; a result of another form has none. */
function changesOf(plugins: readonly ShownCall[], at: number): string[] {
  const plugin = plugins[at];
  if (plugin?.result === undefined) return [];
  const before = plugins.slice(0, at).findLast(one => one.network === plugin.network && one.result);
  try {
    return diffResults(before?.result as Result | undefined, plugin.result as unknown as Result);
  } catch {
    return [];
  }
}

/** Nothing, if no file of this node configures the network, or the plugin is not in it any longer. */
function Explained(props: {
  readonly list: ShownList | undefined;
  readonly type: string | undefined;
}): JSX.Element | null {
  const { list, type } = props;
  const plugin = list?.plugins.find(one => one.type === type);
  if (plugin === undefined) return null;
  const { summary, ipam } = plugin;
  return (
    <>
      {summary !== undefined && <div>{summary}</div>}
      <details>
        <summary>options</summary>
        <Options plugin={plugin} />
        {ipam !== undefined && (
          <>
            <p>
              calls <code>{ipam.type}</code> for addresses
              {ipam.summary !== undefined && `: it ${ipam.summary}`}
            </p>
            <Options plugin={ipam} />
          </>
        )}
      </details>
    </>
  );
}

/** What the list sets, with its meaning; defaults are many, and only their values are shown. */
function Options(props: { readonly plugin: Pick<ShownPlugin, 'options' | 'defaults'> }): JSX.Element {
  const { options, defaults } = props.plugin;
  const left = defaults.map(({ name, value }) => assignment(name, value)).join(', ');
  return (
    <>
      {options.length > 0 && (
        <dl class="options">
          {options.map(({ name, value, meaning }) => (
            <div key={name}>
              <dt>
                <code>{assignment(name, value)}</code>
              </dt>
              {meaning !== undefined && <dd>{withCode(meaning)}</dd>}
            </div>
          ))}
        </dl>
      )}
      {left !== '' && (
        <p class="quiet">
          left at the default: <code>{left}</code>
        </p>
      )}
    </>
  );
}

function assignment(name: string, value: unknown): string {
  return `${name} = ${JSON.stringify(value)}`;
}

/** Descriptions mark names as Markdown does. */
function withCode(text: string): (string | JSX.Element)[] {
  return text.split('`').map((part, i) => (i % 2 === 0 ? part : <code key={i}>{part}</code>));
}

/** The doctor runs CHECK of every attachment. */
const FINDINGS_EVERY_MS = 15_000;
const TRACES_EVERY_MS = 5_000;
/** A trace does not change, and a list seldom. */
const SELDOM_MS = 3_600_000;

/** The view of one attachment; without a choice, of the ADD that made it. */
export function Detail(props: {
  readonly node: ShownNode;
  readonly id: AttachmentId;
  readonly trace: string | undefined;
}): JSX.Element {
  const { node, id, trace } = props;
  const traces = usePolled<readonly RequestSummary[]>('traces', TRACES_EVERY_MS);
  const own = (traces.value ?? []).filter(one => keyOf(one) === keyOf(id));
  const chosen = trace ?? (own.find(({ verb, code }) => verb === 'ADD' && code === 0) ?? own[0])?.id;
  const record = usePolled<ShownRequest>(chosen && `traces/${chosen}`, SELDOM_MS);
  const list = usePolled<ShownList>(`lists/${id.network}`, SELDOM_MS);
  useEffect(leaveWithEscape, []);
  const one = node.attachments.find(each => keyOf(each) === keyOf(id));
  return (
    <>
      <p>
        <a href="#/attachments">← All attachments</a>
      </p>
      {one === undefined ? (
        <h2 tabIndex={-1}>
          {id.containerId} {id.ifname} is not attached to {id.network}
        </h2>
      ) : (
        <Facts one={one} node={node} />
      )}
      <Chain
        one={one}
        node={node}
        record={record.value?.verb === 'ADD' ? record.value : undefined}
        list={list.value}
      />
      <section aria-labelledby="requests-title">
        <h3 id="requests-title">Requests</h3>
        {own.length === 0 ? (
          <p class="quiet">
            {traces.value === undefined && traces.problem === undefined
              ? 'Reading …'
              : 'No trace of its requests is stored. The daemon keeps one of each; a command does with --trace.'}
          </p>
        ) : (
          <Requests id={id} requests={own} chosen={chosen} />
        )}
        {record.problem !== undefined && <p class="notice broken">{record.problem}</p>}
        {record.value !== undefined && <Waterfall record={record.value} />}
      </section>
    </>
  );
}

function Facts({ one, node }: { readonly one: NodeAttachment; readonly node: ShownNode }): JSX.Element {
  const now = useNodeTime(node.time);
  const condition = conditionOf(one);
  const why = one.health?.problem ?? one.why;
  const pools = node.pools.filter(({ network }) => network === one.network);
  const routes = one.routes.map(({ destination, gateway }) => {
    return gateway === undefined ? destination : `${destination} via ${gateway}`;
  });
  const facts: readonly (readonly [name: string, text: string | undefined])[] = [
    ['Network', one.network],
    ['Container', one.containerId],
    ['Addresses', one.addresses.join(', ')],
    ['Ports', one.ports.map(renderPort).join(', ')],
    ['In the container', describe(one.device)],
    ['On the host', describe(one.hostDevice)],
    ['Routes', routes.join(', ')],
    ['Rates', renderRates(one.rates)],
    ['Policies', one.policies.join('; ')],
    ['Namespace', one.netns],
    ['Since', one.since && `${renderAge(one.since, now)} ago, ${renderMoment(one.since)}`],
    ['Made by', `${one.origin.runner} (${one.origin.evidence})`],
    ['Through', one.through],
    [
      'Pools',
      pools.map(({ range, used, size }) => `${range}: ${used} of ${renderSize(size)} used`).join(', '),
    ],
  ];
  return (
    <section aria-labelledby="detail-title">
      <div class="bar">
        <h2 id="detail-title" tabIndex={-1}>
          {titleOf(one)} <span class="quiet">{one.ifname}</span>
        </h2>
        <Badge condition={condition} />
      </div>
      {why !== undefined && <p class={`notice ${condition === 'broken' ? 'broken' : 'unsettled'}`}>{why}</p>}
      {condition === 'broken' && <Mend one={one} />}
      <dl class="facts">
        {facts.map(
          ([name, text]) =>
            text && (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{text}</dd>
              </div>
            ),
        )}
      </dl>
    </section>
  );
}

/** What the doctor advises about it. */
function Mend({ one }: { readonly one: NodeAttachment }): JSX.Element | null {
  const { value } = usePolled<Pick<AnswerOf<'Diagnosis'>, 'findings'>>('findings', FINDINGS_EVERY_MS);
  const mend = value?.findings.find(
    ({ attachment }) => attachment !== undefined && keyOf(attachment) === keyOf(one),
  )?.mend;
  return <Fix mend={mend} />;
}

function describe(device: NodeDevice | undefined): string {
  if (device === undefined) return 'no device';
  const { name, kind, mac, mtu, up, master, addresses } = device;
  const facts = [kind, mac, `MTU ${mtu}`, up ? 'up' : 'down', master && `port of ${master}`, ...addresses];
  return `${name}: ${facts.filter(Boolean).join(', ')}`;
}

function leaveWithEscape(): () => void {
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === 'Escape' && !(event.target instanceof HTMLInputElement))
      location.hash = '#/attachments';
  };
  addEventListener('keydown', onKey);
  return () => removeEventListener('keydown', onKey);
}

/** The newest first; the chosen one is drawn below. */
function Requests(props: {
  readonly id: AttachmentId;
  readonly requests: readonly RequestSummary[];
  readonly chosen: string | undefined;
}): JSX.Element {
  const { id, requests, chosen } = props;
  return (
    <Table<RequestSummary>
      caption="Requests with a trace, the newest first"
      rows={requests}
      keyOf={one => one.id}
      classOf={one => (one.id === chosen ? 'chosen' : '')}
      columns={[
        {
          title: 'Request',
          cell: one => (
            <a href={hrefOf(id, one.id)} aria-current={one.id === chosen ? 'true' : undefined}>
              {one.verb} <span class="quiet">{one.id}</span>
            </a>
          ),
        },
        {
          title: 'Time',
          cell: one => renderMoment(new Date(one.startedAt).toISOString()),
        },
        { title: 'Took', cell: one => renderTime(one.durationMs), isNumber: true },
        { title: 'Outcome', cell: one => <Outcome code={one.code} /> },
      ]}
    />
  );
}
