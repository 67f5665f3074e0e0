// A runner: attaches a namespace to the network of a conflist, shows its addresses, and detaches it again.
//
//   ip netns add web
//   npx bun examples/runner.ts conflists/point-to-point.conflist /run/netns/web
import { addNetwork, CniError, checkNetwork, deleteNetwork, loadFile, type Runtime } from 'catena-cni';

const [file = 'conflists/point-to-point.conflist', netns = '/run/netns/web'] = process.argv.slice(2);
const network = loadFile(file);
const runtime: Runtime = {
  pluginDirs: (process.env.CNI_PATH ?? 'dist/bin').split(':'),
  deadlineMs: { ADD: 30_000 },
  onPlugin: ({ verb, plugin, durationMs }) => console.error(`${verb} ${plugin}: ${durationMs.toFixed(1)} ms`),
};
const attachment = { containerId: 'example', netns, ifname: 'eth0' };

try {
  const result = await addNetwork(network, attachment, runtime);
  for (const { address, gateway } of result.ips ?? []) console.log(`${address} via ${gateway}`);
  await checkNetwork(network, attachment, runtime);
} catch (error) {
  if (!(error instanceof CniError)) throw error;
  console.error(`code ${error.code}: ${error.message}`);
  process.exitCode = 1;
} finally {
  await deleteNetwork(network, attachment, runtime);
}
