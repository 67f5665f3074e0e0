// A chained plugin that refuses containers whose interface has an address outside the allowed prefix.
//
//   npx bun build --compile --outfile dist/only-from examples/plugin.ts
//   {"type": "only-from", "prefix": "10.22."}
import { CniError, definePlugin, nothingToDo, PluginConfig, runPlugin } from 'catena-cni/plugin';
import * as z from 'zod/mini';

const Conf = z.extend(PluginConfig, {
  /** Required prefix of every address. */
  prefix: z.string(),
});

const onlyFrom = definePlugin({
  name: 'only-from',
  config: Conf,
  netns: 'required',
  add({ conf, prevResult = {} }) {
    const stranger = prevResult.ips?.find(({ address }) => !address.startsWith(conf.prefix));
    if (stranger === undefined) return prevResult;
    throw new CniError(
      100,
      `Cannot allow address ${stranger.address}: it does not begin with "${conf.prefix}"`,
    );
  },
  check: nothingToDo('nothing was made'),
  del: nothingToDo('nothing was made'),
  gc: nothingToDo('nothing was made'),
  status: nothingToDo('always able'),
});

await runPlugin(onlyFrom);
