// swift-tools-version:5.5
// The C API of kvstore for Swift. packaging/apple/xcframework puts this file beside the CKVStore.xcframework that it makes.
import PackageDescription

let package = Package(
    name: "kvstore",
    platforms: [.macOS(.v11), .iOS(.v12)],
    products: [.library(name: "CKVStore", targets: ["CKVStore"])],
    targets: [.binaryTarget(name: "CKVStore", path: "CKVStore.xcframework")]
)
