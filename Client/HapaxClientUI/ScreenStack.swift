import HapaxClient
import HapaxModel

/// The screens of one window, the one on top last.
///
/// SwiftUI tells of a view that it appears or disappears, not which one is seen: a sheet lets what is below it stay, a pop tells of both views in
/// either order, a tab appears each time. So nothing is tracked before all that happens at once has been told.
@MainActor
final class ScreenStack {
    /// A view's place in the window.
    final class Place: Sendable {}

    private struct Screen {
        var place: Place
        var name: String
        var properties: Properties
        var client: EventClient
    }

    private var screens: [Screen] = []
    /// Under way while something is still to be told.
    private(set) var settling: Task<Void, Never>?

    nonisolated init() {}

    func appeared(_ place: Place, _ name: String, _ properties: Properties, _ client: EventClient) {
        screens.removeAll { $0.place === place }
        screens.append(Screen(place: place, name: name, properties: properties, client: client))
        settle()
    }

    /// A view that is there already says another name.
    func renamed(_ place: Place, _ name: String, _ properties: Properties) {
        guard let index = screens.firstIndex(where: { $0.place === place }), screens[index].name != name else { return }
        (screens[index].name, screens[index].properties) = (name, properties)
        settle()
    }

    func disappeared(_ place: Place) {
        screens.removeAll { $0.place === place }
        settle()
    }

    private func settle() {
        guard settling == nil else { return }
        // Behind what SwiftUI does in this turn of the main thread.
        settling = Task {
            settling = nil
            // The client tracks a change of name only.
            if let top = screens.last { top.client.trackScreen(top.name, properties: top.properties) }
        }
    }
}
