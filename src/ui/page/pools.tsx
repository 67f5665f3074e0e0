// Which addresses of each pool are taken, and by whom?
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { keyOf } from '../../cni/attachment.ts';
import { count } from '../../lab/words.ts';
import type { NodePool } from '../../node/model.ts';
import { titleOf } from '../../node/words.ts';
import type { ShownLease } from '../shown.ts';
import { usePolled } from './polling.ts';
import { BLOCK, blocksOf, boundsOf, type MapCell, renderSize } from './pool-map.ts';
import { hrefOf, type ViewProps } from './route.ts';
import { matcherOf } from './search.ts';
import { type Column, Name, Table } from './table.tsx';

const EVERY_MS = 5_000;
const COLUMNS = 32;
const PITCH = 10;
/** Further blocks are counted. */
const MOST_BLOCKS = 16;

/** A map of each pool, then its leases. */
export function Pools({ node, query }: ViewProps): JSX.Element {
  const { value, problem } = usePolled<readonly ShownLease[]>('leases', EVERY_MS);
  const matches = matcherOf(query);
  const attachments = new Map(node.attachments.map(one => [keyOf(one), one]));
  const ownerOf = ({ network, containerId = '', ifname = '' }: ShownLease) =>
    attachments.get(keyOf({ network, containerId, ifname }));
  const nameOf = (lease: ShownLease): string => {
    const owner = ownerOf(lease);
    return owner ? titleOf(owner) : `${lease.containerId ?? ''} ${lease.ifname ?? ''}`.trim();
  };
  const leases = value ?? [];
  const shown = leases.filter(one => matches(`${one.network} ${one.address} ${one.state} ${nameOf(one)}`));
  const pools = node.pools.filter(
    pool => matches(`${pool.network} ${pool.range}`) || shown.some(({ network }) => network === pool.network),
  );
  const columns: readonly Column<ShownLease>[] = [
    { title: 'Address', cell: one => one.address },
    { title: 'Network', cell: one => one.network },
    {
      title: 'Leased to',
      cell: one => {
        const owner = ownerOf(one);
        const name = <Name text={nameOf(one)} />;
        return owner ? <a href={hrefOf(owner)}>{name}</a> : name;
      },
    },
    { title: 'State', cell: one => <span title={one.evidence.join('\n')}>{one.state}</span> },
  ];
  return (
    <section aria-labelledby="pools-title">
      <h2 id="pools-title" tabIndex={-1}>
        Pools
      </h2>
      {problem !== undefined && <p class="notice broken">{problem}</p>}
      {pools.length > 0 && <Legend />}
      {pools.length === 0 && <p class="quiet">No network hands out addresses{query && ' that match'}.</p>}
      <div class="pools">
        {pools.map(pool => (
          <Pool key={`${pool.network} ${pool.range}`} pool={pool} leases={leases} nameOf={nameOf} />
        ))}
      </div>
      {shown.length > 0 && <h3>Leases</h3>}
      {shown.length > 0 && (
        <Table
          caption="Leases"
          rows={shown}
          keyOf={one => `${one.network} ${one.address}`}
          columns={columns}
        />
      )}
    </section>
  );
}

function Pool(props: {
  readonly pool: NodePool;
  readonly leases: readonly ShownLease[];
  readonly nameOf: (lease: ShownLease) => string;
}): JSX.Element {
  const { pool, leases, nameOf } = props;
  const blocks = useMemo(() => {
    const bounds = boundsOf(pool.range);
    const own = leases.filter(one => one.network === pool.network);
    return bounds === undefined ? [] : blocksOf(bounds, own);
  }, [pool.range, pool.network, leases]);
  const percent = (100 * pool.used) / Math.max(pool.size, 1);
  const share = percent === 0 ? '0' : percent < 0.1 ? 'less than 0.1' : percent.toFixed(percent < 10 ? 1 : 0);
  return (
    <section class="pool" aria-label={`${pool.network} ${pool.range}`}>
      <h3>
        {pool.network} <span class="quiet">{pool.range}</span>
      </h3>
      <p>
        {pool.used.toLocaleString('en')} of {renderSize(pool.size)} addresses are leased ({share} %).
      </p>
      <div class="blocks">
        {blocks.slice(0, MOST_BLOCKS).map(({ first, last, cells }) => (
          <figure key={first}>
            <Block cells={cells} nameOf={nameOf} label={`${first} to ${last}`} />
            <figcaption class="quiet">
              {first} to {last}
            </figcaption>
          </figure>
        ))}
      </div>
      {blocks.length > MOST_BLOCKS && (
        <p class="quiet">
          {count(blocks.length - MOST_BLOCKS, 'further block')} of {BLOCK} have leases.
        </p>
      )}
    </section>
  );
}

const LOOKS = [
  ['free', 'free'],
  ['live', 'leased'],
  ['unknown', 'leased, its owner is not known'],
  ['unused', 'leased, its owner no longer exists'],
] as const;

function Legend(): JSX.Element {
  return (
    <ul class="legend" aria-label="The maps">
      <li class="quiet">Each square is one address:</li>
      {LOOKS.map(([look, meaning]) => (
        <li key={look}>
          <svg class="map sample" viewBox="0 0 10 10" aria-hidden="true">
            <Square look={look} />
          </svg>{' '}
          {meaning}
        </li>
      ))}
    </ul>
  );
}

function Square({ look }: { readonly look: string }): JSX.Element {
  return (
    <>
      <rect class={`cell ${look}`} width={PITCH - 2} height={PITCH - 2} rx="1.5" />
      {look === 'unused' && <path class="cross" d="M1 1L7 7M7 1L1 7" />}
    </>
  );
}

/** A square for each address: filled if it is leased, crossed if its owner no longer exists. */
function Block(props: {
  readonly cells: readonly MapCell[];
  readonly nameOf: (lease: ShownLease) => string;
  readonly label: string;
}): JSX.Element {
  const { cells, nameOf, label } = props;
  const taken = cells.filter(({ lease }) => lease !== undefined).length;
  const rows = Math.ceil(cells.length / COLUMNS);
  return (
    <svg
      class="map"
      viewBox={`0 0 ${COLUMNS * PITCH} ${rows * PITCH}`}
      role="img"
      aria-label={`${label}: ${count(taken, 'address', 'addresses')} leased`}
    >
      {cells.map(({ address, isInside, lease }, i) => {
        const [x, y] = [(i % COLUMNS) * PITCH, Math.floor(i / COLUMNS) * PITCH];
        const look = lease?.state ?? (isInside ? 'free' : 'outside');
        return (
          <g key={address} transform={`translate(${x} ${y})`}>
            <title>{lease ? `${address}: ${nameOf(lease)}, ${lease.state}` : `${address}: ${look}`}</title>
            <Square look={look} />
          </g>
        );
      })}
    </svg>
  );
}
