// What does `catena compare` do?
import { dirname } from 'node:path';
import { withCommonNames } from '../../lab/compare/differ.ts';
import { playScene } from '../../lab/compare/play.ts';
import { type PlayedScene, renderReport, renderSummary, reportOn } from '../../lab/compare/report.ts';
import { homesOf, laySwap, readSwap, SCENES, type Scene, type SceneRecord } from '../../lab/compare/scene.ts';
import { offerCapabilities } from '../../lab/configured.ts';
import { protectFiles } from '../../lab/host.ts';
import { endWithPlugins, envOfPlugins, RIGHTS_VARIABLE, rerunInNamespaces } from '../../lab/reexec.ts';
import { capabilitiesOf } from '../capability-options.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { chainOf } from '../named-list.ts';
import { printAnswer } from '../output/print.ts';
import { openProgress } from '../terminal/progress.ts';

/** Environment variable that tells a twin its side and its scene. */
const TWIN_VARIABLE = 'CATENA_COMPARE_TWIN';

/** Plays every scene twice, each time in a process with its own namespaces, and shows the differences. */
export async function run(call: CommandCall): Promise<number> {
  const given = readGiven(call);
  const twin = call.env[RIGHTS_VARIABLE] === undefined ? undefined : call.env[TWIN_VARIABLE];
  if (twin !== undefined) {
    call.out(JSON.stringify(await playTwin(twin, given, call)));
    return 0;
  }
  const played = await playAll(given, call);
  const report = reportOn(given.list, played, given.ignored);
  const swapped = `${given.swap.target} for ${given.swap.types.join(', ')}`;
  const render = call.on('all') ? renderReport : renderSummary;
  await printAnswer(call, 'Comparison', report, () => render(report, given.pluginDirs.join(':'), swapped));
  return report.same ? 0 : 1;
}

/** One scene after the other, so that the machine is as busy with the first as with the last. */
async function playAll(given: Given, call: CommandCall): Promise<PlayedScene[]> {
  const progress = openProgress(call, 'compare');
  const played: PlayedScene[] = [];
  try {
    for (const [i, name] of given.scenes.entries()) {
      progress.step(`scenario ${i + 1} of ${given.scenes.length}: ${name}`);
      const [first, second] = await Promise.all([
        playApart('A', name, given, call),
        playApart('B', name, given, call),
      ]);
      played.push({ name, first, second });
    }
  } finally {
    progress.end();
  }
  return played;
}

type Given = ReturnType<typeof readGiven>;

function readGiven(call: CommandCall) {
  const target = call.text('with');
  if (target === undefined) throw new UsageError('Cannot compare: --with <dir or executable> is missing');
  const chain = chainOf(call);
  const { list } = chain;
  return {
    ...chain,
    swap: readSwap(list, target, call.text('plugin')),
    capabilities: offerCapabilities(list, capabilitiesOf(call)),
    ignored: call.texts('ignore').map(readPattern),
    scenes: readScenes(call.texts('scene')),
  };
}

function readScenes(wanted: readonly string[]): string[] {
  const names = SCENES.map(({ name }) => name);
  const unknown = wanted.find(name => !names.includes(name));
  const usual = SCENES.filter(({ onDemand }) => !onDemand).map(({ name }) => name);
  if (unknown === undefined) return wanted.length ? names.filter(name => wanted.includes(name)) : usual;
  throw new UsageError(`Cannot run scenario "${unknown}": there are ${names.join(', ')}`);
}

function readPattern(text: string): RegExp {
  try {
    return new RegExp(text);
  } catch (cause) {
    throw new UsageError(`Cannot use --ignore "${text}": ${(cause as Error).message}`);
  }
}

/** Starts a process that plays one side of a scene. */
async function playApart(
  side: 'A' | 'B',
  scene: string,
  { list }: Given,
  call: CommandCall,
): Promise<SceneRecord> {
  const { exitCode, stdout, stderr } = await rerunInNamespaces(
    { ...call.env, [TWIN_VARIABLE]: `${side} ${scene}` },
    { captured: true },
  );
  if (exitCode !== 0)
    throw new Error(
      `Cannot run scenario "${scene}" with executables ${side}: ${stderr.trim() || `exit code ${exitCode}`}`,
    );
  const given = list.plugins.map(({ conf }) => conf);
  return withCommonNames(JSON.parse(stdout) as SceneRecord, JSON.stringify(given));
}

async function playTwin(twin: string, given: Given, call: CommandCall): Promise<SceneRecord> {
  const { list, swap, pluginDirs, ifname, args, capabilities } = given;
  const scene = SCENES.find(({ name }) => name === twin.slice(2)) as Scene;
  const visible = [...pluginDirs, ...homesOf(swap), dirname(process.execPath)];
  endWithPlugins();
  protectFiles(visible);
  const env = envOfPlugins(call.env);
  // Each twin gets both sets: in some scenes one set finishes what the other one has begun.
  const { shown, ...swapped } = laySwap(swap, list, pluginDirs);
  return playScene(scene, {
    list,
    ifname,
    args,
    capabilities,
    side: twin.startsWith('B') ? 'B' : 'A',
    runtimes: { A: { pluginDirs, env }, B: { ...swapped, env } },
    shown: [...visible, shown],
  });
}
