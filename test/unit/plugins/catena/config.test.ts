import { describe, expect, test } from 'bun:test';
import { about } from '../../../../plugins/catena/about.ts';
import { binDirsOf, CatenaConf, fromMultus, optionsOf, placesOf } from '../../../../plugins/catena/config.ts';
import { decode, type JsonObject } from '../../../../src/cni/json.ts';

const conf = (more: JsonObject) =>
  decode(CatenaConf, { type: 'catena', delegates: [{ type: 'x' }], ...more }, 'it');
const options = (more: JsonObject) => optionsOf(conf(more), 'pods', '1.1.0');

describe('optionsOf()', () => {
  test.each<[string, JsonObject, object]>([
    ['our keys', { network: 'a', readinessFile: '/r', confDir: '/c', definitionNamespace: 'n' }, {}],
    [
      "multus's keys",
      { clusterNetwork: 'a', readinessindicatorfile: '/r', confDir: '/c', multusNamespace: 'n' },
      { delegates: [] },
    ],
    [
      'keys in another letter case',
      { Network: 'a', readinessIndicatorFile: '/r', ConfDir: '/c', multusnamespace: 'n' },
      {},
    ],
  ])('takes %s', (_, more, expected) => {
    expect(options(more)).toMatchObject({
      defaultNetwork: 'a',
      readinessFile: '/r',
      places: { confDir: '/c' },
      policy: { definitions: 'n' },
      ...expected,
    });
  });

  test('has defaults', () => {
    expect(options({})).toMatchObject({
      defaultNetwork: undefined,
      defaultNetworks: [],
      networks: [],
      maxNetworks: 64,
      interfacePrefix: 'net',
      runtimeConfigFor: 'default',
      defaultRoute: { 4: undefined, 6: undefined },
      places: { confDir: '/etc/cni/catena/net.d', definitionsDir: undefined },
      policy: { isolated: false, global: ['default'], system: ['kube-system'], definitions: 'kube-system' },
      readinessFile: undefined,
    });
    expect(options({ type: 'multus' })).toMatchObject({
      places: { confDir: '/etc/cni/multus/net.d' },
      ownTypes: ['catena', 'multus'],
    });
  });

  test.each<[JsonObject, string]>([
    [{ interfacePrefix: 'a/b' }, '"interfacePrefix" is "a/b", which no valid interface name begins with'],
    [{ delegates: [{ interface: 'net1' }] }, 'it has no "name"'],
    [{ delegates: 'x' }, '"delegates" must be of type array, found "x"'],
    [{ networks: 5 }, '"networks" must be a string or an array, found 5'],
    [{ networks: 'a@b@c' }, 'Cannot use "a@b@c" of "networks"'],
    [{ runtimeConfigFor: 'some' }, 'must be "default", "all" or an array'],
    [{ defaultRoute: 5 }, 'must be a name, or an object'],
    [{ auxiliaryCNIChainName: 'x' }, '"auxiliaryCNIChainName" is "x", and "clusterNetwork" is not a path'],
    [
      { clusterNetwork: '/a/b', auxiliaryCNIChainName: '../x' },
      '"auxiliaryCNIChainName" is "../x": network name',
    ],
  ])('refuses %j', (more, problem) => {
    expect(() => options(more)).toThrow(problem);
  });

  test.each([{ delegates: [{ type: 'x' }] }, { network: 'a' }, { clusterNetwork: 'a' }])(
    'catena validate accepts %j',
    more => {
      about.validate?.(decode(CatenaConf, { type: 'catena', ...more }, 'it'), {});
    },
  );

  test.each<[JsonObject, string]>([
    [{ name: 'x', plugins: [] }, 'Cannot use "plugins" of the list: it is empty'],
    [{ name: 'x', type: 'catena' }, 'its plugin "catena" is the delegating plugin itself'],
    [{ name: 'x', cniVersion: '7.0.0', type: 'y' }, 'found "7.0.0"'],
  ])('catena validate refuses %j as a delegate', (delegate, problem) => {
    const bad = decode(CatenaConf, { type: 'catena', delegates: [{ type: 'x' }, delegate] }, 'it');
    expect(() => about.validate?.(bad, {})).toThrow(problem);
  });

  test('catena validate refuses a runner without default network', () => {
    expect(() => about.validate?.(decode(CatenaConf, { type: 'catena' }, 'it'), {})).toThrow(
      'it has no default network; set "delegates" or "network"',
    );
  });
});

test.each<[JsonObject, string[]]>([
  [{}, []],
  [{ binDir: '/a' }, ['/a']],
  [{ binDir: ['/a', '/b'] }, ['/a', '/b']],
  [{ binDir: '' }, []],
])('binDirsOf(%j)', (more, dirs) => {
  expect(binDirsOf(conf(more))).toEqual(dirs);
});

// Every configuration that multus's documentation and manifests show, by its keys: of configuration.md, how-to-use.md, quickstart.md,
// thick-plugin.md, examples/ and deployments/, and the list that its daemon writes.
describe('a configuration of multus', () => {
  const MULTUS = { cniVersion: '0.3.1', name: 'multus-cni-network', type: 'multus' };
  const DAEMON = {
    cniVersion: '0.3.1',
    chrootDir: '/hostroot',
    logLevel: 'verbose',
    logToStderr: true,
    cniConfigDir: '/host/etc/cni/net.d',
    multusAutoconfigDir: '/host/etc/cni/net.d',
    multusConfigFile: 'auto',
    socketDir: '/host/run/multus/',
  };
  test.each<[string, JsonObject, object]>([
    [
      'with a cluster network and networks of every pod',
      {
        ...MULTUS,
        kubeconfig: '/etc/kubernetes/node-kubeconfig.yaml',
        confDir: '/etc/cni/multus/net.d',
        cniDir: '/var/lib/cni/multus',
        binDir: '/opt/cni/bin',
        logFile: '/var/log/multus.log',
        logLevel: 'debug',
        logOptions: { maxAge: 5, maxSize: 100, maxBackups: 5, compress: true },
        capabilities: { portMappings: true },
        readinessindicatorfile: '',
        namespaceIsolation: false,
        clusterNetwork: 'defaultCRD',
        defaultNetworks: ['sidecarCRD', 'flannel'],
        systemNamespaces: ['kube-system', 'admin'],
        multusNamespace: 'kube-system',
        delegates: [{ type: 'weave-net', hairpinMode: true }, { type: 'macvlan' }],
      },
      {
        defaultNetwork: 'defaultCRD',
        defaultNetworks: ['sidecarCRD', 'flannel'],
        delegates: [],
        policy: { isolated: false, system: ['kube-system', 'admin'], definitions: 'kube-system' },
        readinessFile: undefined,
      },
    ],
    [
      'with delegates (cni-configuration.conf)',
      {
        name: 'multus-cni-network',
        type: 'multus',
        delegates: [{ type: 'flannel', masterplugin: true, delegate: { isDefaultGateway: true } }],
        always_use_default: true,
        kubeconfig: '/etc/kubernetes/kubelet.conf',
      },
      { defaultNetwork: undefined, delegates: [{ config: { type: 'flannel' } }] },
    ],
    [
      'with a list as delegate (multus-ptp-portmap.conf)',
      {
        name: 'multus-cni-network',
        type: 'multus',
        capabilities: { portMappings: true },
        delegates: [
          {
            cniVersion: '0.3.1',
            name: 'ptp-tuning-conflist',
            plugins: [{ type: 'ptp' }, { type: 'portmap', capabilities: { portMappings: true } }],
          },
        ],
      },
      { delegates: [{ config: { name: 'ptp-tuning-conflist' } }] },
    ],
    [
      'with a file as cluster network and a file of readiness',
      {
        ...MULTUS,
        clusterNetwork: '/etc/cni/net.d/10-flannel.conflist',
        readinessindicatorfile: '/run/flannel/subnet.env',
      },
      { defaultNetwork: '/etc/cni/net.d/10-flannel.conflist', readinessFile: '/run/flannel/subnet.env' },
    ],
    [
      'with a directory as cluster network',
      {
        ...MULTUS,
        clusterNetwork: '/etc/cni/net.d',
        globalNamespaces: 'default,namespace-a, namespace-b',
        namespaceIsolation: true,
      },
      {
        defaultNetwork: '/etc/cni/net.d',
        policy: { isolated: true, global: ['default', 'namespace-a', 'namespace-b'] },
      },
    ],
    [
      'that its daemon writes',
      {
        ...MULTUS,
        type: 'multus-shim',
        capabilities: { bandwidth: true, portMappings: true },
        logLevel: 'verbose',
        logToStderr: true,
        clusterNetwork: '/host/etc/cni/net.d/10-flannel.conflist',
      },
      {
        defaultNetwork: '/etc/cni/net.d/10-flannel.conflist',
        places: { confDir: '/etc/cni/multus/net.d' },
        ownTypes: ['catena', 'multus-shim'],
      },
    ],
    [
      "merged with that of its daemon, as OpenShift's is",
      {
        ...MULTUS,
        ...DAEMON,
        type: 'multus-shim',
        binDir: '/var/lib/cni/bin',
        clusterNetwork: '/host/run/multus/cni/net.d/10-ovn-kubernetes.conf',
        readinessindicatorfile: '/host/run/multus/cni/net.d/10-ovn-kubernetes.conf',
        confDir: '/hostroot/etc/cni/multus/net.d',
        multusAutoconfigDir: '/host/run/multus/cni/net.d',
        daemonSocketDir: '/run/multus/socket',
        namespaceIsolation: true,
        globalNamespaces: 'default,openshift-multus',
        perNodeCertificate: {
          enabled: true,
          bootstrapKubeconfig: '/var/lib/kubelet/kubeconfig',
          certDuration: '24h',
        },
        auxiliaryCNIChainName: 'vendor-cni-chain',
      },
      {
        defaultNetwork: '/run/multus/cni/net.d/10-ovn-kubernetes.conf',
        readinessFile: '/run/multus/cni/net.d/10-ovn-kubernetes.conf',
        places: { confDir: '/etc/cni/multus/net.d' },
        auxiliary: { file: '/run/multus/cni/net.d/10-ovn-kubernetes.conf', name: 'vendor-cni-chain' },
      },
    ],
    [
      'with a network below a file: what is wrong with that is said when it is read',
      { ...MULTUS, clusterNetwork: '/proc/version/net.conf', auxiliaryCNIChainName: 'further' },
      { auxiliary: { file: '/proc/version/net.conf', name: 'further' } },
    ],
    [
      'of its daemon, with every other key',
      {
        ...DAEMON,
        name: 'multus-cni-network',
        type: 'multus',
        clusterNetwork: 'flannel',
        defaultNetworks: ['/host/etc/cni/extra.conf', 'sidecar'],
        multusMasterCNI: '10-flannel.conflist',
        forceCNIVersion: true,
        overrideNetworkName: true,
        connectionLimit: 5,
        metricsPort: 8080,
        enablePprof: true,
        retryDeleteOnError: true,
      },
      { defaultNetwork: 'flannel', defaultNetworks: ['/etc/cni/extra.conf', 'sidecar'] },
    ],
  ])('%s means the same', (_, config, expected) => {
    const known = decode(CatenaConf, config, 'it');
    expect(optionsOf(known, 'multus-cni-network', '0.3.1')).toMatchObject(expected);
    const unknown = Object.keys(config).filter(key => !Object.hasOwn(CatenaConf.shape, key));
    expect(unknown).toEqual([]);

    // Translated for a switch, it says the same as an entry of ours.
    const { entry, dropped } = fromMultus(config, '/k');
    expect(Object.keys(entry).filter(key => [...dropped, 'chrootDir', 'name'].includes(key))).toEqual([]);
    const translated = decode(CatenaConf, entry, 'it');
    const all = optionsOf(known, 'multus-cni-network', '0.3.1');
    expect(optionsOf(translated, 'multus-cni-network', '0.3.1')).toEqual({
      ...all,
      ownTypes: ['catena', 'catena'],
    });
    expect(placesOf(translated, {})).toEqual(placesOf(known, {}));
    expect([entry.type, entry.kubeconfig]).toEqual(['catena', '/k']);
  });

  test('without its daemon keeps its paths', () => {
    const paths = {
      clusterNetwork: '/host/x.conf',
      readinessindicatorfile: '/host/y',
      confDir: '/hostroot/z',
    };
    expect(options({ type: 'multus', ...paths })).toMatchObject({
      defaultNetwork: '/host/x.conf',
      readinessFile: '/host/y',
      places: { confDir: '/hostroot/z' },
    });
  });
});

describe('placesOf()', () => {
  const env = { CATENA_STATE_DIR: '/s', CATENA_RUN_DIR: '/r', CATENA_CNI_CACHE_DIR: '/c', OTHER: 'x' };

  test('uses the environment', () => {
    expect(placesOf(conf({}), env)).toEqual({
      podsDir: '/s/pods',
      stateDir: '/s/delegates',
      cacheDir: '/c/catena',
      callerCacheDir: '/c',
      isSharedWithMultus: false,
      env,
    });
  });

  test('prefers the configuration, and passes it to delegates', () => {
    const more = { stateDir: '/s2', runDir: '/r2', cniCacheDir: '/c2' };
    expect(placesOf(conf(more), env)).toEqual({
      podsDir: '/s2/pods',
      stateDir: '/s2/delegates',
      cacheDir: '/c2',
      callerCacheDir: '/c',
      isSharedWithMultus: false,
      env: { ...env, CATENA_STATE_DIR: '/s2', CATENA_RUN_DIR: '/r2' },
    });
    expect(placesOf(conf({ cniDir: '/m' }), env)).toMatchObject({ cacheDir: '/m', isSharedWithMultus: true });
    expect(placesOf(conf({}), {}).podsDir).toBe('/var/lib/catena/pods');
  });

  test.each(['multus', 'multus-shim'])('has the result cache of multus for type %s', type => {
    const found = placesOf(conf({ type }), {});
    expect(found).toMatchObject({ cacheDir: '/var/lib/cni/multus', isSharedWithMultus: true });
  });
});
