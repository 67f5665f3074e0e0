// Which files run Catena under systemd or Kubernetes, build it into an image, or watch it?

import { crds } from './crds.ts';
import { daemonSet } from './daemon-set.ts';
import type { Printable, PrintOptions } from './print-options.ts';
import alertRules from './texts/alerts.yaml.txt' with { type: 'text' };
import { renderUnits } from './units.ts';

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
        ['sum', 'count'].map(part => rate('plugin', `plugin_duration_seconds_${part}`, ADDS)).join(' / '),
        '{{plugin}}',
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

export function printFor(what: Printable, options: PrintOptions): string {
  const of = {
    systemd: systemdUnits,
    daemonset: daemonSet,
    containerfile,
    crds,
    alerts: () => alertRules,
    board,
  };
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
