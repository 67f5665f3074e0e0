// What must be so once every attachment has had its DEL?

import type { Driver } from './driver.ts';
import type { Del, Violation } from './history.ts';
import { keyOf } from './networks.ts';

/** What failed is repeated, as runtimes do. */
const ATTEMPTS = 4;
/** Files that stay on purpose: which boot it is, and locks. */
const KEPT = /^\/var\/lib\/catena\/boot$|\.lock$|\/lock$|\.sock(\.seat|\.wire)?$/;

/** Deletes what may be there and looks at the whole node. */
export async function finish(driver: Driver): Promise<Violation[]> {
  const { model } = driver;
  for (let attempt = 1; ; attempt++) {
    const open = model.list('present', 'whole', 'unknown');
    if (open.length === 0) break;
    if (attempt > ATTEMPTS) {
      return [
        { rule: 'DEL does not succeed', text: `${open.map(keyOf).join(', ')} after ${ATTEMPTS} attempts` },
      ];
    }
    const round = open.map(({ pod, net, slot, by }): Del => {
      return { kind: 'del', pod, net, slot, by: by === 'command' ? 'command' : 'plugins', at: 0 };
    });
    const found = await driver.run(round);
    if (found.length) return found;
    if (attempt > 1) await Bun.sleep(1_000);
  }
  // What our command had made and a runtime took down, the journal still has; the reference leaves notes of ours.
  const stale = [...model.entries.values()].filter(one => one.staleRecord || one.byReference);
  if (stale.length) {
    const found = await driver.run(
      stale.map(({ pod, net, slot }): Del => ({ kind: 'del', pod, net, slot, by: 'command', at: 0 })),
    );
    if (found.length) return found;
  }
  // What a killed daemon left beside its socket goes when the next one starts.
  const { violations = [] } = await driver.daemons.act('start');
  if (violations.length) return [...violations];
  const late = await driver.daemons.endAll();
  const seen = await driver.looker.look(model.slots.filter(({ alive }) => alive).map(({ index }) => index));
  const left = [
    ...late,
    ...seen.host.filter(one => /^(veth|bwp)/.test(one.ifname)).map(({ ifname }) => `device ${ifname}`),
    ...[...seen.inside].flatMap(([slot, devices]) => {
      return devices
        .filter(one => /^eth/.test(one.ifname))
        .map(({ ifname }) => `${ifname} in namespace ${slot}`);
    }),
    ...seen.leases.map(({ net, address }) => `lease of ${address} of ${net}`),
    ...seen.files.filter(file => !KEPT.test(file)).map(file => `file ${file}`),
    ...[...seen.rules.matchAll(/"catena:net-[^"]*"/g)].map(([note]) => `element ${note}`),
  ];
  if (left.length === 0) return [];
  return [{ rule: 'end: something is left', text: [...new Set(left)].join('; ') }];
}
