// What does the delegate runner do for each verb?
import { isObject, memberOf } from '../../src/cni/json.ts';
import { parseResult } from '../../src/cni/result.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';
import { addPod } from '../../src/delegate/add.ts';
import { checkPod, runnerStatus } from '../../src/delegate/check.ts';
import { deletePod } from '../../src/delegate/delete.ts';
import { collectPods } from '../../src/delegate/garbage.ts';
import type { Pod, Runner } from '../../src/delegate/runner.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { RUNNER } from './config.ts';
import { keyOf, loadFollow, prepareRunner, type RunnerSurroundings } from './runner.ts';

/**
 * Attaches a container to all of its networks: the default one and any number of further ones, each with a chain of its own.
 * @param surroundings of the process that runs it
 */
export function runnerIn(surroundings: RunnerSurroundings) {
  const withRunner = <T>(call: Call<PluginConfig>, work: (runner: Runner) => Promise<T>): Promise<T> =>
    prepareRunner(call, surroundings, work);
  return definePlugin({
    name: RUNNER,
    // Its options are parsed by `prepareRunner()`: an invalid one must not make DEL fail.
    config: PluginConfig,
    netns: 'required',

    async add(call) {
      const result = await withRunner(call, runner => addPod(runner, podOf(call)));
      return parseResult(result, call.version, 'result of the default network');
    },

    check(call) {
      return withRunner(call, runner => checkPod(runner, keyOf(call), call.env.netns));
    },

    async upkeep(call) {
      const { followPod } = await loadFollow();
      await withRunner(call, runner => followPod(runner, keyOf(call), podOf(call)));
    },

    del(call) {
      return withRunner(call, runner => deletePod(runner, keyOf(call), call.env.netns));
    },

    async gc(call) {
      const { kept } = call;
      // Without a list, nothing can be recognized as garbage.
      if (kept === undefined) return;
      await withRunner(call, runner => collectPods(runner, kept));
    },

    status(call) {
      return withRunner(call, runnerStatus);
    },
  });
}

function podOf({ env, args, request }: Call<PluginConfig>): Pod {
  const offered = memberOf(request, 'runtimeConfig');
  const { containerId, netns, ifname } = env;
  return { containerId, netns, ifname, args, capabilityArgs: isObject(offered) ? offered : {} };
}
