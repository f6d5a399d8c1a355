import AppleStubs
import HapaxClient
import Testing

@Suite("DeviceNetwork (R24)", .serialized, .endsWhenItHangs)
struct DeviceNetworkTests {
    private let network = DeviceNetwork()

    @Test("there is none until the system has told")
    func nothingIsKnownAtFirst() {
        #expect(network.current == nil)
    }

    @Test(
        "the path tells what kind of network it is",
        arguments: [
            (NWPath(.satisfied, [.wifi]), NetworkType.wifi), (NWPath(.satisfied, [.wiredEthernet]), .wired),
            (NWPath(.unsatisfied, [.wifi]), nil), (NWPath(.requiresConnection, [.cellular]), nil),
            (NWPath(.satisfied, [.other]), .wired), (NWPath(.satisfied, [.other], isExpensive: true), .cellular4G),
        ] as [(NWPath, NetworkType?)])
    func pathTells(path: NWPath, type: NetworkType?) {
        System.changePath(path)
        #expect(network.current == type)
    }

    @Test(
        "the telephony framework tells the generation",
        arguments: [
            (CTRadioAccessTechnologyEdge, .cellular2G), (CTRadioAccessTechnologyHSDPA, .cellular3G),
            (CTRadioAccessTechnologyLTE, .cellular4G), (CTRadioAccessTechnologyNRNSA, .cellular5G),
            (CTRadioAccessTechnologyNR, .cellular5G), (nil, .cellular4G), ("newer", .cellular4G),
        ] as [(String?, NetworkType)])
    func telephonyTells(technology: String?, type: NetworkType) {
        System.changePath(NWPath(.satisfied, [.cellular], isExpensive: true), technology: technology)
        #expect(network.current == type)
    }
}
