// How does multus treat a pod, by its documentation and its sources (4.3)? There is no package of it for Debian: a test plays it.
import fs from 'node:fs';
import path from 'node:path';
import { readEntry, writeEntry } from '../../src/attachments/entries.ts';
import { parseFrozen } from '../../src/chain/config/conflist.ts';
import type { Container, Lab, Row } from './netns.ts';
import { REFERENCE_BIN_DIR } from './plugin.ts';

/** Where multus calls plugins, and its directory. */
export interface Multus {
  readonly lab: Lab;
  readonly cniDir: string;
}

/** ADD: the note of the container first, then one network after the other, each with an entry as libcni writes it. */
export async function multusAdd(
  { lab, cniDir }: Multus,
  container: Container,
  networks: readonly Row[],
): Promise<Row[]> {
  fs.mkdirSync(cniDir, { recursive: true, mode: 0o700 });
  const ifnames = networks.map((_, i) => (i === 0 ? 'eth0' : `net${i}`));
  const note = networks.map((conf, i) => ({
    Conf: {},
    ConfList: conf,
    Name: conf.name,
    ifnameRequest: ifnames[i],
    IsFilterV4Gateway: false,
    IsFilterV6Gateway: false,
    Bytes: Buffer.from(JSON.stringify(conf)).toString('base64'),
  }));
  fs.writeFileSync(path.join(cniDir, container.id), JSON.stringify(note), { mode: 0o600 });
  const results: Row[] = [];
  for (const [i, conf] of networks.entries()) {
    const ifname = ifnames[i] as string;
    let prevResult: Row | undefined;
    for (const plugin of conf.plugins) {
      const { name, cniVersion } = conf;
      const call = { command: 'ADD', conf: { name, cniVersion, ...plugin }, container, ifname, prevResult };
      const { exitCode, result, stdout } = await lab.plugin(plugin.type, {
        ...call,
        binDir: REFERENCE_BIN_DIR,
      });
      if (exitCode !== 0) throw new Error(`Cannot play multus: ${stdout}`);
      prevResult = result;
    }
    const id = { network: conf.name, containerId: container.id, ifname, netns: container.path };
    const source = JSON.stringify(conf);
    writeEntry(cniDir, { ...id, args: [], capabilityArgs: {}, source, result: prevResult });
    results.push(prevResult ?? {});
  }
  return results;
}

/** DEL: the note says which networks, last first; without one, nothing is done. Every failure is an error here. */
export async function multusDel({ lab, cniDir }: Multus, container: Container): Promise<string[]> {
  const file = path.join(cniDir, container.id);
  if (!fs.existsSync(file)) return [];
  const note: Row[] = JSON.parse(fs.readFileSync(file, 'utf8'));
  fs.rmSync(file);
  for (const { Bytes, ConfList, ifnameRequest: ifname } of note.toReversed()) {
    const source = Buffer.from(Bytes, 'base64').toString();
    if (!ConfList.plugins?.length) throw new Error('Cannot play multus: its note of a list has no plugins');
    const { name: network, version, plugins } = parseFrozen(source);
    const id = { network, containerId: container.id, ifname };
    const prevResult = readEntry(cniDir, id)?.result;
    for (const { type, conf } of plugins.toReversed()) {
      const call = {
        command: 'DEL',
        conf: { ...conf, name: network, cniVersion: version },
        container,
        ifname,
        prevResult,
      };
      const { exitCode, stdout } = await lab.plugin(type, { ...call, binDir: REFERENCE_BIN_DIR });
      if (exitCode !== 0) throw new Error(`Cannot play multus: ${stdout}`);
    }
    fs.rmSync(path.join(cniDir, 'results', `${network}-${container.id}-${ifname}`), { force: true });
  }
  return note.map(({ Name }) => Name);
}
