// Which JSON Schemas are published, so that an editor can help to write a conflist?
import { join } from 'node:path';
import type { JsonObject } from '../../src/cni/json.ts';
import { SPEC_VERSIONS } from '../../src/cni/result.ts';
import { ConflistSchema } from '../../src/cni/schemas.ts';
import { DIALECT, describePlugin, renderSchema, whenIpam, whenType } from '../../src/plugin/schema/render.ts';
import { KNOWN_TYPES, loadAbout } from '../registry.ts';

/** Keys that several of our plugins have. */
const SHARED_SOURCES = [sourceAt('../../src/delegate/selection.ts')];

/**
 * The schemas by name: `conflist`, and each plugin's type. Each is self-contained. They describe keys in their canonical spelling
 * and allow unknown keys, as the protocol does. Run by the build: descriptions come from the doc comments of the sources, which
 * the executable does not contain.
 */
export async function renderSchemas(): Promise<Record<string, JsonObject>> {
  const abouts = await Promise.all(KNOWN_TYPES.map(async type => ({ type, about: await loadAbout(type) })));
  const types = abouts.map(({ type }) => type);
  const ipam = abouts.filter(({ about }) => about.kind === 'ipam').map(({ type }) => type);
  const plugins = Object.fromEntries(
    abouts.map(({ type, about }) => {
      const { kind, summary, capabilities, config } = about;
      const sources = [sourceAt(`../${type}/config.ts`)];
      return [type, describePlugin({ type, kind, summary, capabilities, config }, sources, SHARED_SOURCES)];
    }),
  );
  return {
    conflist: {
      $schema: DIALECT,
      title: 'CNI network configuration list',
      ...renderConflist(types, ipam),
      $defs: plugins,
    },
    ...Object.fromEntries(
      types.map(type => [
        type,
        {
          $schema: DIALECT,
          ...plugins[type],
          ...(ipam.includes(type)
            ? {}
            : {
                allOf: ipam.map(whenIpam),
                $defs: Object.fromEntries(ipam.map(name => [name, plugins[name]])),
              }),
        },
      ]),
    ),
  };
}

function renderConflist(types: readonly string[], ipam: readonly string[]): JsonObject {
  const schema = renderSchema(ConflistSchema, [sourceAt('../../src/cni/schemas.ts')]);
  const { plugins } = schema.properties as { plugins: JsonObject };
  const chained = types.filter(type => !ipam.includes(type));
  const items = {
    ...(plugins.items as JsonObject),
    allOf: [...chained.map(whenType), ...ipam.map(whenIpam)],
  };
  return {
    ...schema,
    properties: { ...(schema.properties as JsonObject), plugins: { ...plugins, items } },
    // With "cniVersions", the runtime may ignore a newer "cniVersion".
    if: { not: { required: ['cniVersions'] } },
    // biome-ignore lint/suspicious/noThenProperty: the keyword of JSON Schema
    then: { properties: { cniVersion: { enum: SPEC_VERSIONS } } },
  };
}

function sourceAt(path: string): string {
  return join(import.meta.dirname, path);
}
