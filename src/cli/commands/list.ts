// What does `catena list` do?
import { listNetworks } from '../../chain/load.ts';
import { listAttachments } from '../../chain/result-cache.ts';
import { cacheDirOf } from '../../chain/runtime.ts';
import type { CommandCall } from '../command.ts';
import { confDirOf, runtimeOf, warn } from '../target.ts';

/** Prints the networks of the configuration directory and the attachments on record, and says which files are wrong. */
export async function run(call: CommandCall): Promise<number> {
  const { networks, diagnostics } = listNetworks(confDirOf(call));
  const { attachments, damaged } = listAttachments(cacheDirOf(runtimeOf(call)));
  const shown = {
    networks: networks.map(({ file, list: { name, version, plugins } }) => {
      return { name, cniVersion: version, plugins: plugins.map(({ type }) => type), file };
    }),
    attachments: attachments.map(({ network, containerId, ifname, netns }) => {
      return { network, containerID: containerId, ifname, netns };
    }),
  };
  if (call.on('json')) call.out(`${JSON.stringify(shown, null, 4)}\n`);
  else {
    for (const one of shown.networks)
      call.out(`network ${one.name} ${one.cniVersion} ${one.plugins.join(',')} ${one.file}\n`);
    for (const one of shown.attachments)
      call.out(`attachment ${one.network} ${one.containerID} ${one.ifname} ${one.netns || '-'}\n`);
  }
  for (const { error } of diagnostics) warn(call, error);
  for (const error of damaged) warn(call, error);
  return 0;
}
