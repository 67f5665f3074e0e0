// Which version of the tool is this?
import manifest from '../../package.json' with { type: 'json' };

export const TOOL_VERSION: string = manifest.version;
