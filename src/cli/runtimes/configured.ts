// How has the administrator configured each runtime: which directories, and how many files?
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { attempt } from '../../cni/errors.ts';
import { defined, isObject, type JsonObject } from '../../cni/json.ts';
import { namesIn } from '../../files/read-file.ts';
import type { RuntimeName, Settings } from './rules.ts';

/** The settings in a runtime's own configuration; missing ones have the runtime's default. */
export interface Configured extends Settings {
  readonly runtime: RuntimeName;
  /** The last file with such a setting. */
  readonly file: string;
  readonly confDir?: string;
  readonly binDirs?: readonly string[];
}

/** Configuration files of each runtime; later ones take precedence. */
const FILES: Readonly<Record<RuntimeName, (etc: string) => readonly string[]>> = {
  containerd: etc => [join(etc, 'containerd/config.toml')],
  'CRI-O': etc => withDropIns(join(etc, 'crio/crio.conf')),
  podman: etc => withDropIns(join(etc, 'containers/containers.conf')),
};

/** containerd renamed its CRI plugin in version 2. */
const CONTAINERD_PLUGINS = ['io.containerd.grpc.v1.cri', 'io.containerd.cri.v1.runtime'];

/**
 * Reads the configuration of each runtime that has one. An unreadable file is ignored, since a runtime that does not start
 * attaches nothing.
 * @param etc the directory of configurations, `/etc`
 */
export function readConfigured(etc: string): Configured[] {
  return (Object.keys(FILES) as RuntimeName[]).flatMap(runtime => {
    const found = FILES[runtime](etc).flatMap(file => {
      const toml = readToml(file);
      return toml ? [{ ...READERS[runtime](toml), file, runtime }] : [];
    });
    return found.length ? [Object.assign({}, ...found) as Configured] : [];
  });
}

/** Conflicts with a configuration directory and a plugin directory, human-readable. */
export function findMismatches(
  configured: readonly Configured[],
  confDir: string,
  binDir: string | undefined,
): string[] {
  return configured.flatMap(({ runtime, file, confDir: own, binDirs }) => [
    ...(own !== undefined && clean(own) !== clean(confDir)
      ? [`${runtime} reads "${own}" instead of "${confDir}", as "${file}" says`]
      : []),
    ...(binDir !== undefined && binDirs !== undefined && !binDirs.map(clean).includes(clean(binDir))
      ? [`${runtime} looks for plugins in "${binDirs.join(':')}", as "${file}" says, and not in "${binDir}"`]
      : []),
  ]);
}

const READERS: Readonly<Record<RuntimeName, (toml: JsonObject) => Omit<Configured, 'runtime' | 'file'>>> = {
  containerd(toml) {
    const plugins = tableAt(toml, 'plugins');
    const cni = CONTAINERD_PLUGINS.map(name => tableAt(tableAt(plugins, name), 'cni'));
    const found: JsonObject = Object.assign({}, ...cni);
    const [dir, dirs] = [textAt(found, 'bin_dir'), textsAt(found, 'bin_dirs')];
    const max = found.max_conf_num;
    return defined({
      confDir: textAt(found, 'conf_dir'),
      binDirs: dirs ?? (dir === undefined ? undefined : [dir]),
      maxConfNum: typeof max === 'number' ? max : undefined,
    });
  },
  'CRI-O'(toml) {
    const network = tableAt(tableAt(toml, 'crio'), 'network');
    return defined({
      confDir: textAt(network, 'network_dir'),
      binDirs: textsAt(network, 'plugin_dirs'),
      defaultNetwork: textAt(network, 'cni_default_network'),
    });
  },
  podman(toml) {
    const network = tableAt(toml, 'network');
    return defined({
      confDir: textAt(network, 'network_config_dir'),
      binDirs: textsAt(network, 'cni_plugin_dirs'),
    });
  },
};

function tableAt(table: JsonObject, key: string): JsonObject {
  const found = table[key];
  return isObject(found) ? found : {};
}

/** In all three runtimes, an empty value means the default. */
function textAt(table: JsonObject, key: string): string | undefined {
  const found = table[key];
  return typeof found === 'string' && found !== '' ? found : undefined;
}

function textsAt(table: JsonObject, key: string): string[] | undefined {
  const found = table[key];
  if (!Array.isArray(found)) return undefined;
  const texts = found.filter((one): one is string => typeof one === 'string' && one !== '');
  return texts.length ? texts : undefined;
}

function readToml(file: string): JsonObject | undefined {
  const value: unknown = attempt(() => Bun.TOML.parse(readFileSync(file, 'utf8')));
  return isObject(value) ? value : undefined;
}

function withDropIns(file: string): string[] {
  const dir = `${file}.d`;
  const names = namesIn(dir).filter(name => name.endsWith('.conf'));
  return [file, ...names.sort().map(name => join(dir, name))];
}

function clean(dir: string): string {
  return dir.replace(/\/+$/, '') || '/';
}
