// What is left of Catena on a node that uninstalls it as the manual says? The last scenario: the node has no network of ours afterwards.

import { uninstallCatena } from '../install-catena.ts';
import { must, type Scenario } from '../scenario.ts';

export const uninstall: Scenario = {
  name: 'uninstall',
  endsCatena: true,
  async play(cluster, _, saw) {
    const [node] = cluster.nodes;
    if (node === undefined) throw new Error('a cluster has a node');
    const { machine, place } = node;
    const said = await uninstallCatena(cluster, [node]);
    saw(`uninstall --purge on ${place.name}: ${said.split('\n').at(-1)}`);
    const rules = await machine.ok(['nft', 'list', 'tables']);
    must(!rules.includes('catena'), `tables remain: ${rules}`);
    const files = await machine.ok(['ls', '/opt/cni/bin', '/etc/cni/net.d']);
    must(!/bridge|catena|conflist/.test(files), `files remain: ${files}`);
    const { files: kept } = await machine.holds();
    must(kept.length === 0, `files remain: ${kept.join(', ')}`);
  },
};
