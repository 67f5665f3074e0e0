// Which files run Catena under systemd or Kubernetes, build it into an image, or watch it?

import { crds } from './crds.ts';
import { daemonSet } from './daemon-set.ts';
import type { Printable, PrintOptions } from './print-options.ts';
import { renderUnits } from './units.ts';

/** An alert, with the condition that must hold for a time. */
interface Alert {
  readonly alert: string;
  readonly expr: string;
  /** Ten minutes unless given. */
  readonly for?: string;
  readonly severity: 'critical' | 'warning';
  /** With labels as `{{ $labels.network }}`. */
  readonly summary: string;
  /** What to do on the node. */
  readonly action: string;
}

const NODE = '{{ $labels.instance }}';
const NETWORK = '"{{ $labels.network }}"';

const ALERTS: readonly Alert[] = [
  {
    alert: 'CatenaRequestsFail',
    expr:
      'sum by (instance, network, verb) (rate(catena_requests_total{verb=~"ADD|DEL", code!="0"}[5m]))' +
      ' / sum by (instance, network, verb) (rate(catena_requests_total{verb=~"ADD|DEL"}[5m])) > 0.1',
    severity: 'critical',
    summary: `More than a tenth of {{ $labels.verb }} on network ${NETWORK} fail on ${NODE}`,
    action: 'catena log shows which and why, catena doctor what is wrong with the node',
  },
  {
    alert: 'CatenaRequestsSlow',
    expr: 'histogram_quantile(0.9, sum by (instance, verb, le) (rate(catena_request_duration_seconds_bucket{verb=~"ADD|DEL"}[10m]))) > 5',
    severity: 'warning',
    summary: `A tenth of {{ $labels.verb }} take more than five seconds on ${NODE}`,
    action:
      'catena log --requests lists the requests that were traced, catena log <id> how long each plugin took',
  },
  {
    alert: 'CatenaAddressesRunOut',
    expr: 'catena_range_addresses_used / catena_range_addresses > 0.9',
    severity: 'warning',
    summary: `Nine tenths of {{ $labels.range }} of network ${NETWORK} are leased on ${NODE}`,
    action: 'catena ipam ls shows the leases; catena gc --gone frees those of containers that are gone',
  },
  {
    alert: 'CatenaPoolRunsOut',
    expr: 'max by (network, pool) (catena_pool_blocks_claimed) / max by (network, pool) (catena_pool_blocks) > 0.9',
    severity: 'critical',
    summary: `Nodes have claimed nine tenths of the blocks of pool {{ $labels.pool }} of network ${NETWORK}`,
    action: 'catena ipam pools shows which node has which; add a subnet to the pool',
  },
  {
    alert: 'CatenaAttachmentsBroken',
    expr: 'catena_watched_drift{state="given up"} > 0',
    severity: 'critical',
    summary: `{{ $value }} attachments on ${NODE} are not as their ADD made them, and repair did not help`,
    action: 'catena ls --check shows which; catena doctor what stops the repair',
  },
  {
    alert: 'CatenaRecordsLeak',
    expr: 'catena_leaked_records > 0',
    for: '1h',
    severity: 'warning',
    summary: `{{ $value }} attachments on ${NODE} outlived their container`,
    action: 'catena gc --gone deletes them',
  },
  {
    alert: 'CatenaRoutesMissing',
    expr: 'catena_node_routes{state="problem"} > 0',
    severity: 'critical',
    summary: `{{ $value }} routes to pods of other nodes are not as wanted on ${NODE}`,
    action: 'catena doctor names them',
  },
  {
    alert: 'CatenaDaemonOverloaded',
    expr: 'sum by (instance) (rate(catena_declined_total{reason=~"busy|workers"}[10m])) > 0.1',
    severity: 'warning',
    summary: `The daemon on ${NODE} leaves calls to their callers, which are slower`,
    action: 'give its container a greater cpu request',
  },
  {
    alert: 'CatenaDaemonGone',
    expr: 'count(catena_build_info offset 1h) > count(catena_build_info) or absent(catena_build_info)',
    for: '15m',
    severity: 'warning',
    summary:
      'Fewer daemons report than an hour ago; without one, calls are slower and nothing is repaired unasked',
    action: 'look at the logs of the daemon on the nodes that are missing',
  },
];

/** Rules for Prometheus, as YAML. */
function alertRules(): string {
  const rules = ALERTS.map(
    ({ alert, expr, for: during = '10m', severity, summary, action }) => `      - alert: ${alert}
        expr: ${quoted(expr)}
        for: ${during}
        labels: { severity: ${severity} }
        annotations:
          summary: ${quoted(summary)}
          description: ${quoted(action)}
`,
  );
  return `# Alerts about Catena: a file of rule_files in prometheus.yml; promtool check rules <file> checks it.
groups:
  - name: catena
    rules:
${rules.join('')}`;
}

/** A scalar of YAML in single quotes. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

/** A panel of the board: its title, the unit of its values, and queries with the legend of each. */
type Panel = readonly [
  title: string,
  unit: string,
  queries: readonly (readonly [expr: string, legend: string])[],
];

const ON = 'instance=~"$node"';

/** What a counter grows by in a second, by these labels. @param more conditions, after a comma */
function rate(by: string, counter: string, more = ''): string {
  return `sum by (${by}) (rate(catena_${counter}{${ON}${more}}[$__rate_interval]))`;
}

function quantile(share: number, by: string, histogram: string, more = ''): string {
  return `histogram_quantile(${share}, ${rate(by, `${histogram}_bucket`, more)})`;
}

const ADDS = ', verb="ADD"';
const LEASED = (of: string) => `sum by (network, range) (catena_range_addresses${of}{${ON}})`;
const BLOCKS = (of: string) => `max by (network, pool) (catena_pool_blocks${of})`;

const PANELS: readonly Panel[] = [
  ['Requests', 'reqps', [[rate('verb', 'requests_total'), '{{verb}}']]],
  [
    'Failed requests',
    'reqps',
    [[rate('verb, network, code', 'requests_total', ', code!="0"'), '{{verb}} {{network}} code {{code}}']],
  ],
  [
    'ADD and DEL: median and 99 %',
    's',
    [0.5, 0.99].map(share => [
      quantile(share, 'verb, le', 'request_duration_seconds', ', verb=~"ADD|DEL"'),
      `{{verb}} ${share * 100} %`,
    ]),
  ],
  [
    'Plugins of an ADD: mean',
    's',
    [
      [
        ['sum', 'count'].map(part => rate('link', `link_duration_seconds_${part}`, ADDS)).join(' / '),
        '{{link}}',
      ],
    ],
  ],
  ['Attachments', 'short', [[`sum by (network) (catena_attachments{${ON}})`, '{{network}}']]],
  ['Leased addresses', 'percentunit', [[`${LEASED('_used')} / ${LEASED('')}`, '{{network}} {{range}}']]],
  [
    'Claimed blocks of pools',
    'percentunit',
    [[`${BLOCKS('_claimed')} / ${BLOCKS('')}`, '{{network}} {{pool}}']],
  ],
  [
    'Not as ADD made it',
    'short',
    [
      [`sum by (state) (catena_watched_drift{${ON}})`, '{{state}}'],
      [`sum(catena_leaked_records{${ON}})`, 'outlived its container'],
      [`sum(catena_node_routes{${ON}, state="problem"})`, 'routes to other nodes'],
    ],
  ],
  [
    'Waiting for the daemon: 99 %',
    's',
    [
      [quantile(0.99, 'le', 'queue_wait_seconds'), 'in its queue'],
      [quantile(0.99, 'le', 'lock_wait_seconds'), 'for another request of the container'],
    ],
  ],
  ['Calls left to their callers', 'reqps', [[rate('reason', 'declined_total'), '{{reason}}']]],
];

/** Grafana's grid has 24 columns. */
const [WIDTH, HEIGHT] = [12, 8];
const SOURCE = { type: 'prometheus', uid: '$source' };

/** A board for Grafana 9 and later, as JSON: Dashboards, New, Import. */
function board(): string {
  const panels = PANELS.map(([title, unit, queries], i) => ({
    id: i + 1,
    type: 'timeseries',
    title,
    datasource: SOURCE,
    gridPos: { x: (i % 2) * WIDTH, y: Math.floor(i / 2) * HEIGHT, w: WIDTH, h: HEIGHT },
    fieldConfig: { defaults: { unit, min: 0 }, overrides: [] },
    targets: queries.map(([expr, legendFormat], at) => ({
      refId: String.fromCharCode('A'.charCodeAt(0) + at),
      datasource: SOURCE,
      expr,
      legendFormat,
    })),
  }));
  const list = [
    { name: 'source', label: 'Prometheus', type: 'datasource', query: 'prometheus' },
    {
      ...{ name: 'node', label: 'Node', type: 'query', datasource: SOURCE, refresh: 2 },
      ...{ query: 'label_values(catena_build_info, instance)', includeAll: true, multi: true },
      current: { text: 'All', value: '$__all' },
    },
  ];
  const time = { from: 'now-6h', to: 'now' };
  const about = { uid: 'catena', title: 'Catena', tags: ['cni'], schemaVersion: 37, refresh: '1m', time };
  return `${JSON.stringify({ ...about, templating: { list }, panels }, undefined, 2)}\n`;
}

/** The text of one of them. */
export function printFor(what: Printable, options: PrintOptions): string {
  const of = { systemd: systemdUnits, daemonset: daemonSet, containerfile, crds, alerts: alertRules, board };
  return of[what](options);
}

function systemdUnits({ binDir }: PrintOptions): string {
  return renderUnits('/etc/systemd/system', binDir)
    .map(({ path, text }) => `# ${path}\n${text}`)
    .join('\n');
}

function containerfile({ version, image, home }: PrintOptions): string {
  return `# podman build --tag ${image} --file Containerfile ${home}
FROM docker.io/library/debian:stable-slim
LABEL org.opencontainers.image.title="catena" org.opencontainers.image.version="${version}"
COPY catena catena-core /usr/local/bin/
ENTRYPOINT ["/usr/local/bin/catena"]
`;
}
