// What is known about one attachment: its facts, its chain, its requests?
import type { ComponentChildren, JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import { type AttachmentId, keyOf } from '../../cni/attachment.ts';
import { renderTime } from '../../lab/words.ts';
import { conditionOf } from '../../node/graph/condition.ts';
import type { NodeAttachment, NodeDevice } from '../../node/model.ts';
import { renderAge, renderMoment, renderPort, renderRates, titleOf } from '../../node/words.ts';
import type { RequestSummary, ShownList, ShownNode, ShownRequest } from '../shown.ts';
import { Badge, Outcome } from './badge.tsx';
import { Chain } from './chain.tsx';
import { Fix } from './command.tsx';
import { useNodeTime } from './list.tsx';
import { usePolled } from './polling.ts';
import { renderSize } from './pool-map.ts';
import { hrefOf } from './route.ts';
import { Table } from './table.tsx';
import { Waterfall } from './waterfall.tsx';

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
  const own = (traces.value ?? []).filter(
    one => keyOf({ ...one, containerId: one.containerId }) === keyOf(id),
  );
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
        <Fact name="Network">{one.network}</Fact>
        <Fact name="Container">{one.containerId}</Fact>
        <Fact name="Addresses">{one.addresses.join(', ')}</Fact>
        <Fact name="Ports">{one.ports.map(renderPort).join(', ')}</Fact>
        <Fact name="In the container">{one.device ? describe(one.device) : 'no device'}</Fact>
        <Fact name="On the host">{one.hostDevice ? describe(one.hostDevice) : 'no device'}</Fact>
        <Fact name="Routes">
          {one.routes
            .map(({ destination, gateway }) =>
              gateway === undefined ? destination : `${destination} via ${gateway}`,
            )
            .join(', ')}
        </Fact>
        <Fact name="Rates">{renderRates(one.rates)}</Fact>
        <Fact name="Policies">{one.policies.join('; ')}</Fact>
        <Fact name="Namespace">{one.netns}</Fact>
        <Fact name="Since">
          {one.since && `${renderAge(one.since, now)} ago, ${renderMoment(one.since)}`}
        </Fact>
        <Fact name="Made by">{`${one.origin.runner} (${one.origin.evidence})`}</Fact>
        <Fact name="Through">{one.through}</Fact>
        <Fact name="Pools">
          {pools.map(({ range, used, size }) => `${range}: ${used} of ${renderSize(size)} used`).join(', ')}
        </Fact>
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

function Fact({ name, children }: { readonly name: string; readonly children?: ComponentChildren }) {
  if (children === undefined || children === '') return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function describe({ name, kind, mac, mtu, up, master, addresses }: NodeDevice): string {
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
