// Will the configuration do what its author intends, and who may change it?
import { closeSync, existsSync, openSync, readSync, statSync } from 'node:fs';
import { basename, dirname, isAbsolute, join } from 'node:path';
import { coreBeside, findPlugin, isFront } from '../../../chain/config/find-plugin.ts';
import { refusalOf } from '../../../cli/runtimes/libcni.ts';
import { CORE_NAME } from '../../../cni/directories.ts';
import { attempt, CniError, ErrorCode } from '../../../cni/errors.ts';
import { leaseDirsOf, typesIn } from '../../../cni/plugin-about.ts';
import {
  type Check,
  type Finding,
  groupBy,
  type NodeUser,
  type NodeView,
  type Problem,
  problem,
  ROOT,
  type Seen,
  unseen,
} from '../finding.ts';

/** Files that cannot be used. */
export const broken: Check = ({ confDir, facts }) => {
  const { networks, diagnostics } = facts.networks();
  if (diagnostics.length === 0) return `${networks.length} networks in "${confDir}", all readable`;
  return diagnostics.map(({ error }) => problem('error', error.message, `catena validate ${confDir}`));
};

/** The first file by name wins: runtimes that use one file never use the others. */
export const shadowed: Check = ({ confDir, facts }) => {
  const { networks } = facts.networks();
  const [first, ...others] = networks.map(({ file }) => basename(file)).sort();
  if (first === undefined) {
    const found = `there is no network in "${confDir}": runtimes report "not ready"`;
    const mend = `catena init podnet --kind bridge --subnet auto && catena install podnet.conflist --conf-dir ${confDir}`;
    return [problem('error', found, mend)];
  }
  if (others.length === 0) return `"${first}" is the only file, so every runtime uses it`;
  const found = `runtimes that use one file use "${first}"; they ignore ${others.map(name => `"${name}"`).join(', ')}`;
  return [problem('info', found, 'catena networks --why')];
};

/** Lists in a version whose results a runtime of this node refuses. */
export const tooNew: Check = ({ confDir, facts, installedRuntimes = [] }) => {
  const problems = facts.networks().networks.flatMap(({ file, list }) =>
    installedRuntimes.flatMap(runtime => {
      const found = refusalOf(list.source, runtime);
      return found === undefined ? [] : problem('warning', `"${basename(file)}": ${found}`, 'edit the list');
    }),
  );
  return problems.length ? problems : `installed runtimes know the versions of all lists in "${confDir}"`;
};

/** Attachments of networks whose list was removed. They can be checked and deleted, but no container can be attached. */
export const unlisted: Check = ({ confDir, facts }) => {
  const listed = new Set(facts.networks().networks.map(({ list }) => list.name));
  const known = facts.attachments().attachments;
  // Networks of a delegate runner are in its configuration, in definitions or in a cluster.
  const standing = known.filter(one => !one.isGone && one.through === undefined);
  const alone = standing.filter(({ network, ifname }) => ifname !== 'lo' && !listed.has(network));
  const groups = groupBy(alone, ({ network }) => network);
  if (groups.size === 0) return 'every network with attachments has a list';
  return [...groups].map(([network, attached]) => {
    const ids = new Set(attached.map(({ containerId }) => containerId));
    const count = `${ids.size} container${ids.size === 1 ? ' is' : 's are'}`;
    const found = `${count} attached to network "${network}", which has no list in "${confDir}"`;
    // Podman and others keep lists elsewhere, or in no file at all.
    if (!known.some(one => one.network === network && one.stateDir !== undefined))
      return problem('info', found);
    const mend = 'put the list back, or delete the containers: catena del works from the records';
    return problem('warning', found, mend);
  });
};

/** Plugins whose executables are missing, or are not all of the same release. */
export const executables: Check = node => {
  const types = new Set(allTypes(node));
  const problems = [...[...types].flatMap(type => findMissing(type, node)), ...findMixed(node)];
  return problems.length ? problems : `${types.size} plugins, all installed`;
};

/**
 * Networks that a runtime calls not ready, for a reason that no other check has found: STATUS knows what the kernel and servers lack.
 * @param found by the other checks
 */
export async function unready(node: NodeView, found: readonly Finding[]): Promise<Seen> {
  const { facts, askStatus, user = ROOT } = node;
  if (user.id !== 0) return [unseen('whether the plugins of networks are ready')];
  const errors = found.filter(({ severity }) => severity === 'error');
  // In a user namespace, plugins miss rights that they have where runtimes call them.
  if (askStatus === undefined) return [];
  if (user.unknown !== undefined || errors.some(({ id }) => id === 'executables'))
    return 'plugins were not asked';
  const lists = facts.networks().networks.map(({ list }) => list);
  const asked = lists.filter(({ name }) => !errors.some(one => one.found.includes(`"${name}"`)));
  const answers = await Promise.all(asked.map(async list => ({ list, error: await askStatus(list) })));
  const problems = answers.flatMap(({ list: { name }, error }) => {
    if (error === undefined) return [];
    const { code, message, details, plugin } = error;
    const said = [message, details].filter(Boolean).join('; ');
    if (plugin?.ended) return problem('unexamined', `whether network "${name}" is ready: ${said}`);
    const isLimited = code === ErrorCode.unavailableLimited;
    const found = `network "${name}" ${isLimited ? 'is ready with limits' : 'is not ready, so its ADD fails'}: ${said}`;
    const mend = `do what plugin "${plugin?.type}" says; "catena status ${name}" asks it again`;
    return problem(isLimited ? 'warning' : 'error', found, mend);
  });
  return problems.length ? problems : `${asked.length} networks are ready`;
}

function allTypes({ facts }: NodeView): string[] {
  return facts.networks().networks.flatMap(({ list }) => list.plugins.flatMap(({ conf }) => typesIn(conf)));
}

function findMissing(type: string, { pluginDirs }: NodeView): Problem[] {
  try {
    const path = findPlugin(type, pluginDirs);
    return [...findHalf(path), ...findUnusable(path)];
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    const mend = `catena install --bin-dir ${pluginDirs[0] ?? '/opt/cni/bin'}, or install the package that has "${type}"`;
    return [problem('error', error.message, mend)];
  }
}

/** A front needs the Bun program beside it for whatever the daemon does not do. */
function findHalf(path: string): Problem[] {
  if (!isFront(path) || existsSync(coreBeside(path))) return [];
  const found = `"${path}" cannot run without "${coreBeside(path)}", which is missing`;
  return [problem('error', found, `catena install, or copy "${CORE_NAME}" there`)];
}

/** A file that the kernel refuses to execute for a runtime, although our own code runs without it. */
function findUnusable(path: string): Problem[] {
  const mode = statSync(path, { throwIfNoEntry: false })?.mode ?? 0;
  const refuse = (what: string, mend: string) => [
    problem('error', `"${path}" ${what}: no runtime can start it`, mend),
  ];
  if ((mode & EXECUTABLE) === 0) return refuse('is not executable', `chmod +x ${path}`);
  if (['\x7fELF', '#!'].some(magic => beginOf(path).startsWith(magic))) return [];
  const what = 'is no program: it begins with neither an ELF header nor "#!"';
  return refuse(what, `catena install --force --bin-dir ${dirname(path)}`);
}

/** linux/stat.h: S_IXUSR, S_IXGRP and S_IXOTH */
const EXECUTABLE = 0o111;

/** The first bytes of a file, as Latin-1; those of a program if this user may not read it. */
function beginOf(path: string): string {
  const begin = attempt(() => {
    const file = openSync(path, 'r');
    const bytes = Buffer.alloc(4);
    const length = readSync(file, bytes);
    closeSync(file);
    return bytes.toString('latin1', 0, length);
  });
  return begin ?? '#!';
}

/** Our executables are one file with many names. A different file under one of these names is of another release, or not ours. */
function findMixed({ pluginDirs, ownNames }: NodeView): Problem[] {
  return pluginDirs.flatMap(dir => {
    const tool = statSync(`${dir}/catena`, { bigint: true, throwIfNoEntry: false });
    if (tool === undefined) return [];
    const others = ownNames.filter(name => {
      const file = statSync(`${dir}/${name}`, { bigint: true, throwIfNoEntry: false });
      const isOther = file !== undefined && file.ino !== tool.ino && file.size !== tool.size;
      return isOther && findUnusable(`${dir}/${name}`).length === 0;
    });
    if (others.length === 0) return [];
    const names = others.map(name => `"${name}"`).join(', ');
    const [are, plugins] =
      others.length === 1 ? ['is another program', 'a plugin'] : ['are other programs', 'plugins'];
    const found = `${names} in "${dir}" ${are} than "catena" there: ${plugins} of another release or another vendor`;
    return [problem('info', found, `catena install --bin-dir ${dir} --dry-run`)];
  });
}

/** linux/stat.h: S_IWGRP and S_IWOTH */
const WRITABLE_BY_OTHERS = 0o022;

/**
 * Checks the directories of executables, configurations and our own state, and their files, for those that other users may write
 * to.
 */
export const permissions: Check = ({ pluginDirs, confDir, facts, findAbout, user = ROOT, ...node }) => {
  const { networks } = facts.networks();
  const leases = networks.flatMap(({ list }) => leaseDirsOf(list, findAbout));
  const types = new Set(networks.flatMap(({ list }) => list.plugins.map(({ type }) => type)));
  const executables = pluginDirs.flatMap(dir => [...types].map(type => join(dir, type)));
  const files = networks.map(({ file }) => file);
  const problems = [
    ...[...pluginDirs, confDir, ...executables, ...files].flatMap(path => judge(path, user)),
    ...[node.runDir, node.stateDir].flatMap(dir =>
      judge(dir, user, 'can replace our sockets, locks and records'),
    ),
    ...[node.cacheDir, ...new Set(leases)].flatMap(dir => judge(dir, user, 'can replace results and leases')),
    ...pluginDirs.filter(dir => !isAbsolute(dir)).map(relativeDir),
  ];
  return problems.length ? problems : 'only root can change executables and lists';
};

function judge(path: string, user: NodeUser, power = 'can decide what root runs'): Problem[] {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return [];
  // In a user namespace, files of the host's root look like those of any other unmapped user.
  const isForeign = ![0, user.id, user.unknown].includes(stat.uid);
  if (!isForeign && (stat.mode & WRITABLE_BY_OTHERS) === 0) return [];
  const mode = (stat.mode & 0o7777).toString(8).padStart(4, '0');
  const found = `"${path}" belongs to user ${stat.uid} and has mode ${mode}: any user that can write there ${power}`;
  return [problem('error', found, `chown root "${path}" && chmod go-w "${path}"`)];
}

function relativeDir(dir: string): Problem {
  const found = `plugin directory ${JSON.stringify(dir)} is relative: it depends on the working directory`;
  return problem('warning', found, 'use absolute paths for plugin directories');
}
